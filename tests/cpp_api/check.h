// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the programs here check with. A failure ends the process.
#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

// The text of the exception that a function must throw.
template <class Error, class Function>
std::string Thrown(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  std::fprintf(stderr, "nothing was thrown\n");
  std::exit(1);
}

inline bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
