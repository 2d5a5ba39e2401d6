// SPDX-License-Identifier: Apache-2.0
// Which completions of TensorFlow can be kept beyond the kernel's function.
#include "hvd/tensorflow/completion.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "hvd/tensorflow/tf_api.h"

namespace hvd::tensorflow {
namespace {

using Function = std::function<void()>;

TF_AsyncOpKernelDoneCallback* AddressOf(Function* function) {
  return reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(function);
}

// TensorFlow's functions lie in a library that has libstdc++'s.
class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    void* const terminate = ::dlsym(RTLD_DEFAULT, "_ZSt9terminatev");
    tf.TF_RunAsyncOpKernelDoneCallback = reinterpret_cast<void (*)(TF_AsyncOpKernelDoneCallback*)>(terminate);
  }
};

TEST_F(CompletionTest, OneOnTheStackOfAThreadIsMovedAway) {
  ASSERT_TRUE(TensorFlowHasOurLayout());
  for (const bool main : {true, false}) {
    int runs = 0;
    const auto kernel = [&] {
      std::unique_ptr<Completion> kept;
      {
        Function done = [&runs] { ++runs; };
        kept = std::make_unique<Completion>(AddressOf(&done));
        EXPECT_EQ(done, nullptr);
      }
      EXPECT_FALSE(kept->must_stay());
      kept->Run();
    };
    main ? kernel() : std::thread(kernel).join();
    EXPECT_EQ(runs, 1);
  }
}

TEST_F(CompletionTest, OneOnTheHeapIsLeftThere) {
  Function* const done = new Function([] {});
  const Completion completion(AddressOf(done));
  EXPECT_FALSE(completion.must_stay());
  EXPECT_NE(*done, nullptr);
  delete done;
}

// What a fibre finds out about a completion on its own stack.
bool g_stays, g_untouched;
ucontext_t g_back;

void OnAFibre() {
  Function done = [] {};
  const Completion completion(AddressOf(&done));
  g_stays = completion.must_stay();
  g_untouched = done != nullptr;
}

TEST_F(CompletionTest, OneOnAnUnknownStackStays) {
  std::vector<std::byte> stack(256 << 10);
  ucontext_t fibre;
  ASSERT_EQ(::getcontext(&fibre), 0);
  fibre.uc_stack.ss_sp = stack.data();
  fibre.uc_stack.ss_size = stack.size();
  fibre.uc_link = &g_back;
  ::makecontext(&fibre, &OnAFibre, 0);
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(::swapcontext(&g_back, &fibre), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(g_stays);
  EXPECT_TRUE(g_untouched);
  EXPECT_NE(said.find("inter_op_parallelism_threads to at least 1"), std::string::npos) << said;
}

}  // namespace
}  // namespace hvd::tensorflow
