// What the published C interface of MLX takes for granted and GCC on x86-64 does not have.
//
// Included before everything else when its sources are compiled here; Apple's build needs none of it.
// It never changes what a function does: it supplies a header, two type names and two macros.
#pragma once

#include <sstream>
#include <string>

// <format> is missing before GCC 13; only plain {} is used there.
#if __has_include(<format>)
#include <format>
#endif
#ifndef __cpp_lib_format
namespace std {
inline void tenon_format(ostringstream& out, const char* text) { out << text; }
template <class First, class... Rest>
void tenon_format(ostringstream& out, const char* text, const First& first, const Rest&... rest) {
  for (; *text != 0; ++text) {
    if (text[0] == '{' && text[1] == '}') {
      out << first;
      return tenon_format(out, text + 2, rest...);
    }
    out << *text;
  }
}
template <class... Arguments>
string format(const char* text, const Arguments&... arguments) {
  ostringstream out;
  tenon_format(out, text, arguments...);
  return out.str();
}
} // namespace std
#endif

// The accessors of the half types are declared on Arm only; here they are MLX's own types.
#include "mlx/types/half_types.h"
#if !defined(__aarch64__)
#define HAS_FLOAT16
#define HAS_BFLOAT16
using float16_t = mlx::core::float16_t;
using bfloat16_t = mlx::core::bfloat16_t;
#endif
