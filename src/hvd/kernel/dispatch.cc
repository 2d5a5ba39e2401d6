// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/dispatch.h"

#include <atomic>

#include "hvd/kernel/highway_config.h"

namespace hvd::kernel {

// Each of these folders of functions is compiled for its own instruction set: call one only after asking the processor.
#define HVD_DECLARE_TARGET(name)       \
  namespace name {                     \
  void FillCopy(Table& table);         \
  void FillFloat(Table& table);        \
  void FillHalf(Table& table);         \
  void FillInteger(Table& table);      \
  void FillIntegerScale(Table& table); \
  }
HVD_DECLARE_TARGET(N_AVX3)
HVD_DECLARE_TARGET(N_AVX2)
HVD_DECLARE_TARGET(N_SSE4)
HVD_DECLARE_TARGET(N_NEON)
HVD_DECLARE_TARGET(N_EMU128)
HVD_DECLARE_TARGET(N_SCALAR)
#undef HVD_DECLARE_TARGET

namespace {

#if HWY_ARCH_X86
// The instruction sets that Highway lets the compiler use for each target: all must be there.
bool HasSse4() {
  return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2");
}

bool HasF16c() {
#if defined(__clang__) && __clang_major__ < 18
  return true;  // cannot be asked for; every processor with AVX2 has it
#else
  return __builtin_cpu_supports("f16c");
#endif
}

bool HasAvx2() {
  return HasSse4() && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c();
}

bool HasAvx3() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

struct TableList {
  Table tables[4];
  size_t size = 0;

  TableList() {
#define HVD_ADD_TARGET(target, label) \
  {                                   \
    Table& table = tables[size++];    \
    table.name = label;               \
    target::FillCopy(table);          \
    target::FillFloat(table);         \
    target::FillHalf(table);          \
    target::FillInteger(table);       \
    target::FillIntegerScale(table);  \
  }
#if HWY_TARGETS & HWY_AVX3
    if (HasAvx3()) HVD_ADD_TARGET(N_AVX3, "AVX3")
#endif
#if HWY_TARGETS & HWY_AVX2
    if (HasAvx2()) HVD_ADD_TARGET(N_AVX2, "AVX2")
#endif
#if HWY_TARGETS & HWY_SSE4
    if (HasSse4()) HVD_ADD_TARGET(N_SSE4, "SSE4")
#endif
#if HWY_TARGETS & HWY_NEON
    HVD_ADD_TARGET(N_NEON, "NEON")
#endif
#if HWY_TARGETS & HWY_EMU128
    HVD_ADD_TARGET(N_EMU128, "EMU128")
#endif
#if HWY_TARGETS & HWY_SCALAR
    HVD_ADD_TARGET(N_SCALAR, "SCALAR")
#endif
#undef HVD_ADD_TARGET
  }
};

const TableList& List() {
  static const TableList list;
  return list;
}

std::atomic<const Table*> active{nullptr};

}  // namespace

std::span<const Table> Tables() { return {List().tables, List().size}; }

const Table& ActiveTable() {
  const Table* table = active.load(std::memory_order_acquire);
  if (table == nullptr) [[unlikely]] {
    table = &List().tables[0];
    active.store(table, std::memory_order_release);
  }
  return *table;
}

void ForceTable(const Table* table) { active.store(table, std::memory_order_release); }

}  // namespace hvd::kernel
