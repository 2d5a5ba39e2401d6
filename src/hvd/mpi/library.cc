// SPDX-License-Identifier: Apache-2.0
// Which libmpi to use: see Open in library.h.
#include "hvd/mpi/library.h"

#include <dlfcn.h>

#include <array>
#include <mutex>
#include <vector>

#include "hvd/mpi/calls.h"
#include "hvd/mpi/mpich.h"
#include "hvd/mpi/openmpi.h"

namespace hvd::mpi {
namespace {

// Sonames; those without a version are a developer's links, and last.
constexpr std::array kOpenMpiNames{"libmpi.so.40", "libmpi.so.20", "libmpi_ibm.so.3", "libmpi_ibm.so", "libmpi.so"};
constexpr std::array kMpichNames{"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpich.so", "libmpi.so"};

std::span<const char* const> NamesOf(Family family) {
  if (family == Family::kOpenMpi) return kOpenMpiNames;
  return kMpichNames;
}

struct Found {
  void* library = nullptr;
  Family family = Family::kMpich;
  std::string name;
};

// Says what it is before it is initialised.
std::optional<Found> Recognise(void* library, std::string_view file) {
  const auto version = reinterpret_cast<int (*)(char*, int*)>(dlsym(library, "MPI_Get_library_version"));
  if (version == nullptr) return std::nullopt;
  std::vector<char> text(8192);
  int length = 0;
  if (version(text.data(), &length) != 0) return std::nullopt;
  std::string_view line(text.data());
  line = line.substr(0, line.find_first_of("\n,"));
  while (line.ends_with('\0')) line.remove_suffix(1);
  Found found{library, Family::kMpich, fmt::format("{} ({})", line, file)};
  for (char& c : found.name) {
    if (c == '\t') c = ' ';
  }
  if (dlsym(library, "ompi_mpi_comm_world") != nullptr) found.family = Family::kOpenMpi;
  return found;
}

// Global: components that it loads later look for its symbols.
std::optional<Found> Load(const char* file, int flags) {
  void* library = dlopen(file, RTLD_LAZY | RTLD_GLOBAL | flags);
  return library == nullptr ? std::nullopt : Recognise(library, file);
}

std::optional<Found> FindLoaded() {
  for (const Family family : {Family::kOpenMpi, Family::kMpich}) {
    for (const char* name : NamesOf(family)) {
      if (auto found = Load(name, RTLD_NOLOAD)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Found> FindByName(Family family) {
  for (const char* name : NamesOf(family)) {
    auto found = Load(name, 0);
    if (found && found->family == family) return found;
  }
  return std::nullopt;
}

tl::unexpected<Error> Different(Family wanted, const Found& found, std::string_view how) {
  return Fail(
      Code::kFailedPrecondition,
      "the launcher is of {}, but {} {}: every process would be a job of size 1. Use the mpirun of the same MPI, "
      "or name its library by HOROVOD_MPI_LIBRARY, or set HOROVOD_CONTROLLER=gloo to start without MPI",
      NameOf(wanted), found.name, how);
}

Result<Found> Find(std::optional<Family> wanted, const std::string& path) {
  if (const auto loaded = FindLoaded()) {
    if (wanted && loaded->family != *wanted) return Different(*wanted, *loaded, "is loaded in this process");
    return *loaded;
  }
  if (!path.empty()) {
    const auto named = Load(path.c_str(), 0);
    if (!named) {
      const char* why = dlerror();
      return Fail(Code::kInvalidArgument, "HOROVOD_MPI_LIBRARY={} is no MPI library: {}", path,
                  why == nullptr ? "it has no MPI_Get_library_version" : why);
    }
    if (wanted && named->family != *wanted) return Different(*wanted, *named, "is named by HOROVOD_MPI_LIBRARY");
    return *named;
  }
  std::vector<Family> families{Family::kOpenMpi, Family::kMpich};
  if (wanted) families = {*wanted};
  for (const Family family : families) {
    if (const auto found = FindByName(family)) return *found;
  }
  if (wanted) {
    const Family other = *wanted == Family::kOpenMpi ? Family::kMpich : Family::kOpenMpi;
    if (const auto found = FindByName(other)) return Different(*wanted, *found, "is the only library found here");
  }
  return Fail(Code::kNotFound, "no library of {} was found: install it, or name it by HOROVOD_MPI_LIBRARY",
              wanted ? NameOf(*wanted) : "an MPI");
}

}  // namespace

std::string_view NameOf(Family family) { return family == Family::kOpenMpi ? "Open MPI" : "MPICH"; }

Result<Library*> Open(std::optional<Family> wanted, const std::string& path) {
  static std::mutex mutex;
  static Library* opened = nullptr;
  const std::lock_guard lock(mutex);
  if (opened != nullptr && (!wanted || opened->family() == *wanted)) return opened;
  HVD_ASSIGN_OR_RETURN(const Found found, Find(wanted, path));
  HVD_ASSIGN_OR_RETURN(opened, found.family == Family::kOpenMpi ? Calls<OpenMpi>::Create(found.library, found.name)
                                                                : Calls<Mpich>::Create(found.library, found.name));
  return opened;
}

}  // namespace hvd::mpi
