// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/old_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launch {
namespace {

std::string Suggested(const std::string& line, const std::string& error) {
  return SuggestForOldProgram({"Traceback (most recent call last):", "  File \"train.py\", line 12, in <module>",
                               "    " + line, "    ^^^^^^", error})
      .value_or("");
}

TEST(OldProgram, NamesTheLineToWrite) {
  EXPECT_EQ(
      Suggested("config = tf.ConfigProto()", "AttributeError: module 'tensorflow' has no attribute 'ConfigProto'"),
      "write config = tf.compat.v1.ConfigProto()   or run it with --compat tf1; "
      "python -m horovod.compat train.py lists all such lines");
  EXPECT_THAT(Suggested("opt = tf.train.AdagradOptimizer(0.01 * hvd.size())",
                        "AttributeError: module 'tensorflow._api.v2.train' has no attribute 'AdagradOptimizer'"),
              testing::StartsWith("write opt = tf.compat.v1.train.AdagradOptimizer(0.01 * hvd.size()) "));
  EXPECT_THAT(
      Suggested("hvd.broadcast_variables(opt.variables(), root_rank=0)", "TypeError: 'list' object is not callable"),
      testing::HasSubstr("write hvd.broadcast_variables(opt.variables, root_rank=0); "));
}

TEST(OldProgram, WhatHasNoNameToReplace) {
  EXPECT_THAT(Suggested("x = tf.compat.v1.placeholder(tf.float32)",
                        "RuntimeError: tf.placeholder() is not compatible with eager execution."),
              testing::HasSubstr("write tf.compat.v1.disable_v2_behavior() after the import"));
  EXPECT_THAT(Suggested("model.compile(opt, experimental_run_tf_function=False)",
                        "TypeError: Trainer.compile() got an unexpected keyword argument "
                        "'experimental_run_tf_function'"),
              testing::HasSubstr("compile(...) without it"));
  EXPECT_THAT(
      Suggested("import tensorflow.contrib.slim as slim", "ModuleNotFoundError: No module named 'tensorflow.contrib'"),
      testing::HasSubstr("no contrib any more"));
  EXPECT_THAT(Suggested("K.get_value(x)", "AttributeError: module 'keras.backend' has no attribute 'get_value'"),
              testing::HasSubstr("tensorflow.keras.backend.get_value"));
}

TEST(OldProgram, NamesBelowCompatV1) {
  const std::string v1 = "AttributeError: module 'tensorflow._api.v2.compat.v1' has no attribute ";
  EXPECT_THAT(Suggested("tf.estimator.Estimator(f)", v1 + "'estimator'"),
              testing::HasSubstr("write from horovod.tensorflow import estimator"));
  EXPECT_THAT(Suggested("from tensorflow.compat.v1 import contrib", v1 + "'contrib'"),
              testing::HasSubstr("no contrib any more"));
  EXPECT_THAT(Suggested("x = tf.layers.dense(x, 3)", "AttributeError: `dense` is not available with Keras 3."),
              testing::HasSubstr("pip install tf_keras, and set TF_USE_LEGACY_KERAS=1"));
  EXPECT_THAT(Suggested("K.set_session(s)",
                        "AttributeError: module 'keras._tf_keras.keras.backend' has no attribute 'set_session'"),
              testing::HasSubstr("pip install tf_keras"));
  EXPECT_THAT(Suggested("from tensorflow.python import ipu",
                        "ImportError: cannot import name 'ipu' from 'tensorflow.python' (/usr/tensorflow/python)"),
              testing::HasSubstr("write from horovod.tensorflow import ipu"));
}

TEST(OldProgram, SaysNothingOfOtherErrors) {
  EXPECT_EQ(Suggested("tf.ConfigProt()", "AttributeError: module 'tensorflow' has no attribute 'ConfigProt'"), "");
  EXPECT_EQ(Suggested("names()", "TypeError: 'list' object is not callable"), "");
  EXPECT_EQ(Suggested("import horovod.x", "ModuleNotFoundError: No module named 'horovod.x'"), "");
  EXPECT_FALSE(SuggestForOldProgram({}));
}

}  // namespace
}  // namespace hvd::launch
