// SPDX-License-Identifier: Apache-2.0
// What a caller can get wrong in a struct is an error that names the field and its value, and never touches a peer.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "hvd/hvd.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

class ArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    hvd_init_options options;
    hvd_init_options_default(&options);
    options.rank = 0;
    options.size = 1;
    ASSERT_EQ(hvd_init(&options, &ctx_), HVD_OK) << hvd_last_error();
  }
  void TearDown() override { hvd_shutdown(ctx_); }

  // Every way to hand the request in fails, and says what is wrong.
  void ExpectRefused(const Request& request, const std::string& text, int code = HVD_INVALID_ARGUMENT) {
    hvd_handle handle = 0;
    hvd_output output = EmptyOutput();
    EXPECT_EQ(hvd_submit(ctx_, request, &handle), code);
    EXPECT_NE(std::string(hvd_last_error()).find(text), std::string::npos) << hvd_last_error();
    EXPECT_EQ(hvd_run(ctx_, request, &output), code);
    EXPECT_NE(std::string(hvd_last_error()).find(text), std::string::npos) << hvd_last_error();
    uint64_t id = 0;
    EXPECT_EQ(hvd_prepare(ctx_, request, &id), code);
    EXPECT_NE(std::string(hvd_last_error()).find(text), std::string::npos) << hvd_last_error();
    EXPECT_EQ(hvd_last_status(), code);
  }
  void ExpectRefused(const std::function<void(Request&)>& spoil, const std::string& text,
                     int code = HVD_INVALID_ARGUMENT) {
    float value[4] = {1, 2, 3, 4};
    Request request(HVD_ALLREDUCE, "x", {4}, value);
    spoil(request);
    ExpectRefused(request, text, code);
  }

  hvd_context* ctx_ = nullptr;
};

TEST_F(ArgumentsTest, SizesOfStructs) {
  ExpectRefused([](Request& r) { r->struct_size = 0; }, "hvd_request.struct_size is 0");
  ExpectRefused([](Request& r) { r->struct_size -= 8; }, "hvd_request.struct_size is");
  ExpectRefused([](Request& r) { r->struct_size += 8; }, "hvd_request.struct_size is");
  float value = 1;
  const Request request(HVD_ALLREDUCE, "x", {1}, &value);
  for (const size_t wrong : {size_t{0}, sizeof(hvd_output) - 1, sizeof(hvd_output) + 8}) {
    hvd_output output{};
    output.struct_size = wrong;
    EXPECT_EQ(hvd_run(ctx_, request, &output), HVD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hvd_last_error()).find("hvd_output.struct_size is " + std::to_string(wrong)),
              std::string::npos)
        << hvd_last_error();
  }
  hvd_counters counters{};
  EXPECT_EQ(hvd_get_counters(ctx_, &counters), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("hvd_counters.struct_size is 0"), std::string::npos);
  counters.struct_size = sizeof counters;
  EXPECT_EQ(hvd_get_counters(ctx_, &counters), HVD_OK);
  EXPECT_EQ(counters.operations, 0u) << "a refused request was carried out";
}

TEST_F(ArgumentsTest, FieldsOfARequest) {
  ExpectRefused([](Request& r) { r->flags = 4; }, "hvd_request.flags is 0x4");
  ExpectRefused([](Request& r) { r->flags = 6; }, "hvd_request.flags is 0x6: 0x4 is not known");
  ExpectRefused([](Request& r) { r->flags = 3; }, "HVD_WIRE_FLOAT16 and HVD_WIRE_BFLOAT16: give one");
  ExpectRefused(
      [](Request& r) {
        r->flags = HVD_WIRE_BFLOAT16;
        r->reduce_op = HVD_ADASUM;
      },
      "hvd_request.flags has HVD_WIRE_BFLOAT16, which Adasum cannot use");
  for (const int op : {HVD_ALLGATHER, HVD_BROADCAST, HVD_BARRIER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    ExpectRefused(
        [op](Request& r) {
          r->flags = HVD_WIRE_FLOAT16;
          r->op = op;
        },
        "hvd_request.flags has HVD_WIRE_FLOAT16, which is for allreduce alone");
  }
  ExpectRefused([](Request& r) { r->timeout_s = -0.5; }, "hvd_request.timeout_s is -0.5");
  ExpectRefused([](Request& r) { r->timeout_s = std::nan(""); }, "hvd_request.timeout_s is nan");
  ExpectRefused([](Request& r) { r->op = 99; }, "hvd_request.op is 99");
  ExpectRefused([](Request& r) { r->dtype = -1; }, "hvd_request.dtype is -1");
  ExpectRefused([](Request& r) { r->reduce_op = 6; }, "hvd_request.reduce_op is 6");
  ExpectRefused([](Request& r) { r->ndim = 33; }, "hvd_request.ndim is 33");
  ExpectRefused([](Request& r) { r->ndim = -1; }, "hvd_request.ndim is -1");
  ExpectRefused([](Request& r) { r->shape = nullptr; }, "hvd_request.shape is NULL");
  ExpectRefused([](Request& r) { r->input.device_type = 7; }, "hvd_request.input.device_type is 7");
  ExpectRefused([](Request& r) { r->output.device_type = HVD_CUDA; }, "hvd_request.output.device_type",
                HVD_UNIMPLEMENTED);
  ExpectRefused([](Request& r) { r->stream = &r; }, "hvd_request.stream");
  ExpectRefused([](Request& r) { r->nsplits = 2; }, "hvd_request.nsplits is 2");
  ExpectRefused([](Request& r) { r->process_set = 5; }, "5");
}

TEST_F(ArgumentsTest, Names) {
  ExpectRefused([](Request& r) { r->name = nullptr; }, "hvd_request.name is NULL");
  ExpectRefused([](Request& r) { r->name = ""; }, "hvd_request.name is empty");
  for (const char* bad : {"a\xff", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    ExpectRefused([&](Request& r) { r->name = bad; }, "hvd_request.name is not UTF-8: byte 0x");
  }
  const std::string longest(64 << 10, 'n');
  const std::string too_long = longest + "n";
  ExpectRefused([&](Request& r) { r->name = too_long.c_str(); }, "hvd_request.name has 65537 bytes");
  for (const std::string& good : {std::string("gr\xc3\xbc\xc3\x9f"), std::string("\xf0\x9f\x98\x80"), longest}) {
    float value = 1;
    EXPECT_EQ(hvd_run(ctx_, Request(HVD_ALLREDUCE, good, {1}, &value), nullptr), HVD_OK) << hvd_last_error();
  }
}

TEST_F(ArgumentsTest, TimeOutsOfWaits) {
  float value = 1;
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(ctx_, Request(HVD_ALLREDUCE, "x", {1}, &value), &handle), HVD_OK);
  EXPECT_EQ(hvd_wait(ctx_, handle, std::nan("")), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("timeout_s is nan"), std::string::npos) << hvd_last_error();
  EXPECT_EQ(hvd_wait(ctx_, handle, -1), HVD_OK);
  EXPECT_EQ(hvd_release(ctx_, handle), HVD_OK);
  hvd_store* store = nullptr;
  EXPECT_EQ(hvd_store_connect("127.0.0.1:1", nullptr, -1, &store), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("timeout_s is -1"), std::string::npos) << hvd_last_error();
}

TEST_F(ArgumentsTest, EqualRequestsArePreparedOnce) {
  float value[4] = {1, 2, 3, 4};
  const auto prepare = [&](const std::function<void(Request&)>& change) {
    Request request(HVD_ALLREDUCE, "x", {4}, value);
    change(request);
    uint64_t id = 0;
    EXPECT_EQ(hvd_prepare(ctx_, request, &id), HVD_OK) << hvd_last_error();
    return id;
  };
  const int64_t shorter[] = {3};
  const uint64_t id = prepare([](Request&) {});
  EXPECT_EQ(prepare([](Request&) {}), id);
  EXPECT_EQ(prepare([](Request& r) { r->input = r->output = {}; }), id) << "buffers are not part of it";
  EXPECT_NE(prepare([](Request& r) { r->name = "y"; }), id);
  EXPECT_NE(prepare([&](Request& r) { r->shape = shorter; }), id);
  EXPECT_NE(prepare([](Request& r) { r->prescale = 2; }), id);
  Request again(HVD_ALLREDUCE, "", {4}, value);
  again->name = nullptr;
  again->prepared = id;
  EXPECT_EQ(hvd_run(ctx_, again, nullptr), HVD_OK) << hvd_last_error();
  uint64_t other = 0;
  EXPECT_EQ(hvd_prepare(ctx_, again, &other), HVD_INVALID_ARGUMENT);
}

TEST(InitOptions, AreChecked) {
  const auto refuse = [](const std::function<void(hvd_init_options&)>& spoil, const std::string& text) {
    hvd_init_options options;
    hvd_init_options_default(&options);
    options.size = 1;
    options.rank = 0;
    spoil(options);
    hvd_context* ctx = nullptr;
    EXPECT_EQ(hvd_init(&options, &ctx), HVD_INVALID_ARGUMENT);
    EXPECT_EQ(ctx, nullptr);
    EXPECT_NE(std::string(hvd_last_error()).find(text), std::string::npos) << hvd_last_error();
  };
  refuse([](auto& o) { o.struct_size = 0; }, "hvd_init_options.struct_size is 0");
  refuse([](auto& o) { o.struct_size += 8; }, "hvd_init_options.struct_size is");
  refuse([](auto& o) { o.flags = 16; }, "hvd_init_options.flags is 0x10");
  refuse([](auto& o) { o.timeout_s = -1; }, "hvd_init_options.timeout_s is -1");
  refuse([](auto& o) { o.timeout_s = std::nan(""); }, "hvd_init_options.timeout_s is nan");
  refuse([](auto& o) { o.rank = -2; }, "hvd_init_options.rank is -2");
  refuse([](auto& o) { o.size = -7; }, "hvd_init_options.size is -7");
  refuse([](auto& o) { o.generation = -3; }, "hvd_init_options.generation is -3");
  refuse([](auto& o) { o.host_id = "\xff"; }, "hvd_init_options.host_id is not UTF-8");
  refuse([](auto& o) { o.process_set_count = -1; }, "hvd_init_options.process_set_count is -1");
}

TEST(LastStatus, IsTheCodeBesideTheText) {
  int32_t value = 0;
  EXPECT_EQ(hvd_query(nullptr, HVD_RANK, &value), HVD_FAILED_PRECONDITION);
  EXPECT_EQ(hvd_last_status(), HVD_FAILED_PRECONDITION);
  EXPECT_EQ(hvd_alloc(uint64_t{1} << 62), nullptr);
  EXPECT_EQ(hvd_last_status(), HVD_RESOURCE_EXHAUSTED) << hvd_last_error();
}

}  // namespace
}  // namespace hvd::test
