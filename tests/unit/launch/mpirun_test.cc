// SPDX-License-Identifier: Apache-2.0
// Which mpirun it is, and the line for each.
#include "hvd/launch/plan/mpirun.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hvd/launch/cli/shell_words.h"

namespace hvd::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plan SomePlan() {
  Plan plan;
  plan.program = "/usr/bin/python3";
  plan.arguments = {"python3", "train.py", "--epochs", "3"};
  plan.environment.Set("PATH", "/bin");
  plan.environment.Set("SECRET", "do-not-show");
  plan.environment.Set("BASH_FUNC_which%%", "()");
  plan.environment.Set("SLURM_JOB_ID", "3");
  return plan;
}

std::string Words(MpirunKind kind, const Options& options) {
  const auto words = MpirunWords(kind, options, {{"a", 2}, {"b", 1}}, SomePlan());
  return words ? fmt::format("{}", fmt::join(*words, " ")) : words.error().message;
}

Options Three() {
  Options options;
  options.num_proc = 3;
  return options;
}

TEST(Mpirun, IsKnownByItsVersion) {
  EXPECT_EQ(RecogniseMpirun("mpirun (Open MPI) 4.1.4\n\nReport bugs to"), MpirunKind::kOpenMpi);
  EXPECT_EQ(RecogniseMpirun("HYDRA build details:\n    Version: 4.0.2"), MpirunKind::kHydra);
  EXPECT_EQ(RecogniseMpirun("Intel(R) MPI Library for Linux* OS, Version 2021.9"), MpirunKind::kHydra);
  EXPECT_EQ(RecogniseMpirun("mpirun (IBM Spectrum MPI) 10.3"), MpirunKind::kSpectrum);
  EXPECT_FALSE(RecogniseMpirun("mpirun 1.0 of somebody"));
}

TEST(Mpirun, OpenMpisLine) {
  EXPECT_EQ(
      Words(MpirunKind::kOpenMpi, Three()),
      "-np 3 --allow-run-as-root --tag-output -H a:2,b:1 -mca pml ob1 -mca btl ^openib -bind-to none -map-by slot "
      "-x PATH -x SECRET /usr/bin/python3 train.py --epochs 3");
  Options options = Three();
  options.mpi_args = "-v  --mca 'a b' 1";
  options.binding_args = "--bind-to core";
  options.ssh_port = 22;
  options.ssh_identity_file = "id";
  options.network_interfaces = {"eth0", "eth1"};
  const std::string line = Words(MpirunKind::kOpenMpi, options);
  EXPECT_THAT(line, HasSubstr("--bind-to core -v --mca a b 1 -x PATH"));
  EXPECT_THAT(line, HasSubstr("-mca plm_rsh_args -p 22 -i id -mca btl_tcp_if_include eth0,eth1"));
  EXPECT_THAT(line, Not(HasSubstr("-bind-to none")));
  options.mpi_args = "'open";
  EXPECT_THAT(Words(MpirunKind::kOpenMpi, options), HasSubstr("--mpi-args 'open: a quotation mark is not closed"));
}

TEST(Mpirun, HydrasLine) {
  EXPECT_EQ(Words(MpirunKind::kHydra, Three()),
            "-np 3 -hosts a:2,b:1 -prepend-rank /usr/bin/python3 train.py --epochs 3");
}

TEST(ShellWords, AreReadBackAsTheyWere) {
  const std::vector<std::string> words{"", "plain-word", "a b", "it's", "$HOME", "-x", "^openib", "\"q\"", "a;b&c"};
  EXPECT_EQ(Quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(Quoted("/a/b:c=d,e"), "/a/b:c=d,e");
  EXPECT_EQ(Quoted(words).substr(0, 19), "'' plain-word 'a b'");
  EXPECT_EQ(*SplitWords("-f", "a 'b c' \"d e\""), (std::vector<std::string>{"a", "b c", "d e"}));
}

}  // namespace
}  // namespace hvd::launch
