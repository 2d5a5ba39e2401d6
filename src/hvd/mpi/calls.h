// SPDX-License-Identifier: Apache-2.0
#pragma once
// Library for one ABI. `Abi` has the handles' types and the values of the predefined ones; the calls themselves have
// the same names and meaning in every MPI.

#include <dlfcn.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "hvd/mpi/library.h"

namespace hvd::mpi {

template <typename Abi>
class Calls final : public Library {
 public:
  using Comm = typename Abi::Comm;
  using Group = typename Abi::Group;
  using Request = typename Abi::Request;
  using Datatype = typename Abi::Datatype;
  using Op = typename Abi::Op;
  using Errhandler = typename Abi::Errhandler;

  // Fails if the library lacks a call.
  static Result<Library*> Create(void* library, std::string name) {
    auto* calls = new Calls(library, std::move(name));
    if (calls->missing_ == nullptr) return calls;
    const tl::unexpected<Error> lacks = Fail(Code::kNotFound, "{} has no {}", calls->name_, calls->missing_);
    delete calls;
    return lacks;
  }

  Family family() const override { return Abi::kFamily; }

  bool Initialized() override { return Flag(initialized_); }
  bool Finalized() override { return Flag(finalized_); }
  Status Init(Threads wanted) override {
    int provided = 0;
    return Check(init_thread_(nullptr, nullptr, static_cast<int>(wanted), &provided));
  }
  Threads ThreadLevel() override {
    int level = 0;
    return query_thread_(&level) == 0 ? static_cast<Threads>(level) : Threads::kSingle;
  }
  void Finalize() override { (void)finalize_(); }
  void Abort(int status) override { (void)abort_(abi_.world, status); }

  Handle World() override { return ToHandle(abi_.world); }
  Handle CommAt(const void* address) override {
    Comm comm;
    std::memcpy(&comm, address, sizeof comm);
    return ToHandle(comm);
  }
  int Rank(Handle comm) override { return Number(comm_rank_, comm); }
  int Size(Handle comm) override { return Number(comm_size_, comm); }
  Result<Handle> MakeComm(Handle comm, std::span<const int> ranks, int tag) override {
    Group all{}, members{};
    Comm made{};
    HVD_RETURN_IF_ERROR(Check(comm_group_(From<Comm>(comm), &all)));
    HVD_RETURN_IF_ERROR(Check(group_incl_(all, static_cast<int>(ranks.size()), ranks.data(), &members)));
    HVD_RETURN_IF_ERROR(Check(comm_create_group_(From<Comm>(comm), members, tag, &made)));
    (void)group_free_(&members);
    (void)group_free_(&all);
    HVD_RETURN_IF_ERROR(Check(comm_set_errhandler_(made, abi_.errors_return)));
    return ToHandle(made);
  }

  Result<Handle> Broadcast(void* data, int bytes, int root, Handle comm) override {
    Request request{};
    HVD_RETURN_IF_ERROR(Check(ibcast_(data, bytes, abi_.byte, root, From<Comm>(comm), &request)));
    return ToHandle(request);
  }
  Result<Handle> Gather(const void* mine, int bytes, void* all, const int* counts, const int* offsets,
                        Handle comm) override {
    Request request{};
    HVD_RETURN_IF_ERROR(
        Check(iallgatherv_(mine, bytes, abi_.byte, all, counts, offsets, abi_.byte, From<Comm>(comm), &request)));
    return ToHandle(request);
  }
  Result<Handle> Exchange(const void* out, const int* out_counts, const int* out_offsets, void* in,
                          const int* in_counts, const int* in_offsets, Handle comm) override {
    Request request{};
    HVD_RETURN_IF_ERROR(Check(ialltoallv_(out, out_counts, out_offsets, abi_.byte, in, in_counts, in_offsets, abi_.byte,
                                          From<Comm>(comm), &request)));
    return ToHandle(request);
  }
  bool Reduces(ReduceOp op, DType type) override {
    const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kProduct;
    switch (type) {
      case DType::kFloat32:
      case DType::kFloat64:
        return sums;  // what MPI's min and max make of NaN is not defined
      case DType::kInt32:
      case DType::kInt64:
        // Not the smaller ones: Open MPI 4.1 adds them with saturation, MPICH 4.0 compares unsigned ones as signed.
        return sums || op == ReduceOp::kMin || op == ReduceOp::kMax;
      default:
        return false;
    }
  }
  Result<Handle> Reduce(void* data, int count, ReduceOp op, DType type, Handle comm) override {
    Request request{};
    HVD_RETURN_IF_ERROR(
        Check(iallreduce_(Abi::InPlace(), data, count, TypeOf(type), OpOf(op), From<Comm>(comm), &request)));
    return ToHandle(request);
  }
  Result<bool> Test(Handle* request) override {
    auto native = From<Request>(*request);
    int flag = 0;
    const Status tested = Check(test_(&native, &flag, Abi::StatusIgnore()));
    *request = ToHandle(native);
    if (!tested) return Fail(tested.error());
    return flag != 0;
  }

 private:
  explicit Calls(void* library, std::string name) : abi_(library) {
    name_ = std::move(name);
    if (!abi_.good()) missing_ = "its predefined handles";
    Find(library, "MPI_Initialized", &initialized_);
    Find(library, "MPI_Finalized", &finalized_);
    Find(library, "MPI_Init_thread", &init_thread_);
    Find(library, "MPI_Query_thread", &query_thread_);
    Find(library, "MPI_Finalize", &finalize_);
    Find(library, "MPI_Abort", &abort_);
    Find(library, "MPI_Comm_rank", &comm_rank_);
    Find(library, "MPI_Comm_size", &comm_size_);
    Find(library, "MPI_Comm_group", &comm_group_);
    Find(library, "MPI_Group_incl", &group_incl_);
    Find(library, "MPI_Group_free", &group_free_);
    Find(library, "MPI_Comm_create_group", &comm_create_group_);
    Find(library, "MPI_Comm_set_errhandler", &comm_set_errhandler_);
    Find(library, "MPI_Ibcast", &ibcast_);
    Find(library, "MPI_Iallgatherv", &iallgatherv_);
    Find(library, "MPI_Ialltoallv", &ialltoallv_);
    Find(library, "MPI_Iallreduce", &iallreduce_);
    Find(library, "MPI_Test", &test_);
    Find(library, "MPI_Error_string", &error_string_);
  }

  template <typename Function>
  void Find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function == nullptr && missing_ == nullptr) missing_ = name;
  }

  template <typename Native>
  static Handle ToHandle(Native native) {
    Handle handle = 0;
    std::memcpy(&handle, &native, sizeof native);
    return handle;
  }
  template <typename Native>
  static Native From(Handle handle) {
    Native native;
    std::memcpy(&native, &handle, sizeof native);
    return native;
  }

  static bool Flag(int (*function)(int*)) {
    int flag = 0;
    return function(&flag) == 0 && flag != 0;
  }
  int Number(int (*function)(Comm, int*), Handle comm) {
    int number = -1;
    return function(From<Comm>(comm), &number) == 0 ? number : -1;
  }
  Status Check(int code) {
    if (code == 0) return {};
    std::vector<char> text(8192);
    int length = 0;
    const bool known = error_string_(code, text.data(), &length) == 0 && length > 0;
    return Fail(Code::kUnknown, "MPI: {}", known ? std::string(text.data()) : fmt::format("error {}", code));
  }

  Datatype TypeOf(DType type) {
    switch (type) {
      case DType::kInt32:
        return abi_.int32;
      case DType::kInt64:
        return abi_.int64;
      case DType::kFloat32:
        return abi_.float32;
      default:
        return abi_.float64;
    }
  }
  Op OpOf(ReduceOp op) {
    switch (op) {
      case ReduceOp::kMin:
        return abi_.min;
      case ReduceOp::kMax:
        return abi_.max;
      case ReduceOp::kProduct:
        return abi_.product;
      default:
        return abi_.sum;
    }
  }

  const Abi abi_;
  const char* missing_ = nullptr;
  int (*initialized_)(int*) = nullptr;
  int (*finalized_)(int*) = nullptr;
  int (*init_thread_)(int*, char***, int, int*) = nullptr;
  int (*query_thread_)(int*) = nullptr;
  int (*finalize_)() = nullptr;
  int (*abort_)(Comm, int) = nullptr;
  int (*comm_rank_)(Comm, int*) = nullptr;
  int (*comm_size_)(Comm, int*) = nullptr;
  int (*comm_group_)(Comm, Group*) = nullptr;
  int (*group_incl_)(Group, int, const int*, Group*) = nullptr;
  int (*group_free_)(Group*) = nullptr;
  int (*comm_create_group_)(Comm, Group, int, Comm*) = nullptr;
  int (*comm_set_errhandler_)(Comm, Errhandler) = nullptr;
  int (*ibcast_)(void*, int, Datatype, int, Comm, Request*) = nullptr;
  int (*iallgatherv_)(const void*, int, Datatype, void*, const int*, const int*, Datatype, Comm, Request*) = nullptr;
  int (*ialltoallv_)(const void*, const int*, const int*, Datatype, void*, const int*, const int*, Datatype, Comm,
                     Request*) = nullptr;
  int (*iallreduce_)(const void*, void*, int, Datatype, Op, Comm, Request*) = nullptr;
  int (*test_)(Request*, int*, void*) = nullptr;
  int (*error_string_)(int, char*, int*) = nullptr;
};

}  // namespace hvd::mpi
