// A small emulation of Metal for kernels: right, slow, and suspicious.
//
// One thread group runs at a time; its threads are fibres that run until they meet at a barrier or at an
// operation of their SIMD group of 32. What real hardware lets pass in silence is an error here: a meeting
// point that not all threads reach, two threads at one place of threadgroup memory without a barrier between,
// memory outside of a buffer or never written, an output written twice or not at all.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <ucontext.h>

namespace emulator {

/// Ends the run with the fault's code and words.
[[noreturn]] inline void fault(const char* code, const std::string& text) {
  std::fprintf(stderr, "fault[%s]: %s\n", code, text.c_str());
  // Not through destructors: this may run on the stack of a fibre that they would free.
  std::fflush(stderr);
  std::_Exit(3);
}

struct uint3 {
  uint32_t x, y, z;
};

/// Where a fibre waits.
enum class Wait { none, barrier, simd, ended };

struct Fibre {
  ucontext_t context;
  std::vector<char> stack;
  Wait wait = Wait::none;
  int line = 0;
  /// What it brings to an operation of its SIMD group, and what it takes back.
  double value = 0;
  uint32_t argument = 0;
  char operation = 0;
};

inline std::vector<Fibre> fibres;
inline ucontext_t scheduler;
inline uint32_t current = 0;
/// Counts barriers within a thread group: accesses of different epochs are ordered.
inline uint32_t epoch = 0;
inline uint3 group_size, group_position, n_groups;
inline uint64_t n_groups_done = 0;

inline std::string who() {
  return "thread " + std::to_string(current) + " of group (" + std::to_string(group_position.x) + ", " +
      std::to_string(group_position.y) + ", " + std::to_string(group_position.z) + ")";
}

inline void meet(Wait wait, int line) {
  Fibre& fibre = fibres[current];
  fibre.wait = wait;
  fibre.line = line;
  swapcontext(&fibre.context, &scheduler);
}

inline double simd(char operation, double value, uint32_t argument, int line) {
  Fibre& fibre = fibres[current];
  fibre.operation = operation;
  fibre.value = value;
  fibre.argument = argument;
  meet(Wait::simd, line);
  return fibres[current].value;
}

/// One place of threadgroup memory.
template <class T> struct Cell {
  T value{};
  bool is_written = false;
  uint32_t writer = 0, write_epoch = 0;
  uint32_t reader = 0, read_epoch = UINT32_MAX;
  bool has_readers = false, has_other_readers = false;

  operator T() { return read(); }
  void forget() {
    is_written = has_readers = has_other_readers = false;
    write_epoch = 0;
    read_epoch = UINT32_MAX;
  }
  T read() {
    if (!is_written) fault("uninitialised", who() + " reads threadgroup memory that nobody wrote");
    if (write_epoch == epoch && writer != current)
      fault("race", who() + " reads what thread " + std::to_string(writer) + " wrote since the last barrier");
    if (read_epoch != epoch) has_readers = has_other_readers = false;
    if (has_readers && reader != current) has_other_readers = true;
    read_epoch = epoch;
    reader = current;
    has_readers = true;
    return value;
  }
  Cell& operator=(T next) {
    if (is_written && write_epoch == epoch && writer != current)
      fault("race", who() + " writes what thread " + std::to_string(writer) + " wrote since the last barrier");
    if (has_readers && read_epoch == epoch && (reader != current || has_other_readers))
      fault("race", who() + " writes what another thread has read since the last barrier");
    value = next;
    is_written = true;
    writer = current;
    write_epoch = epoch;
    return *this;
  }
  Cell& operator=(Cell& other) { return *this = other.read(); }
  Cell& operator+=(T more) { return *this = T(read() + more); }
};

struct Resettable {
  virtual void reset() = 0;
};
inline std::vector<Resettable*> shared_memory;

template <class T, size_t N, size_t... More> struct Rows;

template <class T, size_t N> struct Rows<T, N> {
  Cell<T> cells[N];
  Cell<T>& operator[](size_t i) {
    if (i >= N) fault("out-of-bounds", who() + " at " + std::to_string(i) + " of " + std::to_string(N) + " in threadgroup memory");
    return cells[i];
  }
  void clear() { for (auto& cell : cells) cell.forget(); }
};

template <class T, size_t N, size_t M, size_t... More> struct Rows<T, N, M, More...> {
  Rows<T, M, More...> rows[N];
  Rows<T, M, More...>& operator[](size_t i) {
    if (i >= N) fault("out-of-bounds", who() + " at row " + std::to_string(i) + " of " + std::to_string(N) + " in threadgroup memory");
    return rows[i];
  }
  void clear() { for (auto& row : rows) row.clear(); }
};

/// An array that all threads of a group share; fresh and unwritten for each group.
template <class T, size_t... N> struct Shared : Rows<T, N...>, Resettable {
  Shared() { shared_memory.push_back(this); }
  void reset() override { this->clear(); }
};

/// A place in an input, for a load of a vector there.
template <class T> struct Pointer {
  const char* name;
  const std::vector<T>& values;
  int64_t at;
  template <class Vector> operator const Vector*() const {
    int64_t n = sizeof(Vector) / sizeof(T);
    if (at < 0 || uint64_t(at + n) > values.size())
      fault("out-of-bounds", who() + " reads `" + name + "` at " + std::to_string(at) + " to " + std::to_string(at + n) + " of " + std::to_string(values.size()));
    if (at % n != 0) fault("alignment", who() + " reads " + std::to_string(n) + " elements of `" + name + "` at " + std::to_string(at));
    return reinterpret_cast<const Vector*>(&values[at]);
  }
};

/// An input.
template <class T> struct Input {
  const char* name;
  std::vector<T> values;
  const T& operator[](int64_t i) const {
    if (i < 0 || uint64_t(i) >= values.size())
      fault("out-of-bounds", who() + " reads `" + name + "` at " + std::to_string(i) + " of " + std::to_string(values.size()));
    return values[i];
  }
  Pointer<T> operator+(int64_t at) const { return Pointer<T>{name, values, at}; }
  operator T() const { return values[0]; }
};

/// An output; each place is written once, by one thread.
template <class T> struct Output {
  const char* name;
  std::vector<T> values;
  std::vector<uint64_t> writers;
  struct Place {
    Output& out;
    size_t i;
    Place& operator=(T value) {
      uint64_t writer = n_groups_done * fibres.size() + current + 1;
      if (out.writers[i] != 0 && out.writers[i] != writer)
        fault("race", who() + " writes `" + out.name + "` at " + std::to_string(i) + ", which another thread wrote");
      out.writers[i] = writer;
      out.values[i] = value;
      return *this;
    }
    operator T() const {
      if (out.writers[i] == 0) fault("uninitialised", who() + " reads an output that nobody wrote");
      return out.values[i];
    }
  };
  Place operator[](int64_t i) {
    if (i < 0 || uint64_t(i) >= values.size())
      fault("out-of-bounds", who() + " writes `" + name + "` at " + std::to_string(i) + " of " + std::to_string(values.size()));
    return Place{*this, size_t(i)};
  }
};

/// Fills an input from the standard input.
template <class T> bool read(Input<T>& input) {
  return std::fread(input.values.data(), sizeof(T), input.values.size(), stdin) == input.values.size();
}

/// Writes an output to the standard output; every place must have been written.
template <class T> void write(const Output<T>& output) {
  for (size_t i = 0; i < output.writers.size(); ++i)
    if (output.writers[i] == 0) fault("unwritten", std::string("`") + output.name + "` at " + std::to_string(i) + " was never written");
  std::fwrite(output.values.data(), sizeof(T), output.values.size(), stdout);
}

inline void (*kernel_entry)() = nullptr;

inline void run_fibre() {
  kernel_entry();
  fibres[current].wait = Wait::ended;
  swapcontext(&fibres[current].context, &scheduler);
}

/// Lets one SIMD group do the operation at which all its lanes wait; whether it could.
inline bool simd_step(uint32_t first, uint32_t n_lanes) {
  for (uint32_t i = first; i < first + n_lanes; ++i)
    if (fibres[i].wait != Wait::simd) return false;
  for (uint32_t i = first + 1; i < first + n_lanes; ++i)
    if (fibres[i].line != fibres[first].line || fibres[i].operation != fibres[first].operation)
      fault("divergence", "lanes of one SIMD group are at different operations, lines " + std::to_string(fibres[first].line) + " and " + std::to_string(fibres[i].line));
  std::vector<float> in(n_lanes);
  for (uint32_t i = 0; i < n_lanes; ++i) in[i] = float(fibres[first + i].value);
  std::vector<float> out = in;
  char operation = fibres[first].operation;
  // Sums and extremes by halves, as the hardware's shuffles do.
  if (operation == '+' || operation == '>' || operation == '<') {
    for (uint32_t step = 16; step > 0; step /= 2) {
      std::vector<float> before = out;
      for (uint32_t i = 0; i < n_lanes; ++i) {
        float a = before[i], b = (i ^ step) < n_lanes ? before[i ^ step] : (operation == '+' ? 0.0f : a);
        out[i] = operation == '+' ? a + b : operation == '>' ? std::fmax(a, b) : std::fmin(a, b);
      }
    }
  } else {
    for (uint32_t i = 0; i < n_lanes; ++i) {
      uint32_t argument = fibres[first + i].argument;
      uint32_t from = operation == '^' ? (i ^ argument) : operation == 'd' ? i + argument : argument;
      out[i] = from < n_lanes ? in[from] : in[i];
    }
  }
  for (uint32_t i = 0; i < n_lanes; ++i) {
    fibres[first + i].value = out[i];
    fibres[first + i].wait = Wait::none;
  }
  return true;
}

inline void run_group() {
  uint32_t n = group_size.x * group_size.y * group_size.z;
  for (auto* memory : shared_memory) memory->reset();
  epoch = 0;
  for (uint32_t i = 0; i < n; ++i) {
    Fibre& fibre = fibres[i];
    getcontext(&fibre.context);
    fibre.stack.resize(128 * 1024);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    fibre.context.uc_link = &scheduler;
    fibre.wait = Wait::none;
    makecontext(&fibre.context, run_fibre, 0);
  }
  while (true) {
    for (current = 0; current < n; ++current)
      if (fibres[current].wait == Wait::none) swapcontext(&scheduler, &fibres[current].context);
    bool has_moved = false;
    for (uint32_t first = 0; first < n; first += 32) has_moved |= simd_step(first, std::min(32u, n - first));
    if (has_moved) continue;
    uint32_t n_ended = 0, n_barrier = 0;
    int line = 0;
    for (uint32_t i = 0; i < n; ++i) {
      n_ended += fibres[i].wait == Wait::ended;
      if (fibres[i].wait != Wait::barrier) continue;
      if (n_barrier++ && fibres[i].line != line)
        fault("divergence", "threads of one group wait at different barriers, lines " + std::to_string(line) + " and " + std::to_string(fibres[i].line));
      line = fibres[i].line;
    }
    if (n_ended == n) return;
    if (n_barrier != n)
      fault("divergence", "only " + std::to_string(n_barrier) + " of " + std::to_string(n) + " threads reach the barrier in line " + std::to_string(line) + "; " + std::to_string(n_ended) + " have ended");
    ++epoch;
    for (auto& fibre : fibres) fibre.wait = Wait::none;
  }
}

/// Runs a whole grid, which counts threads.
inline void run_grid(uint3 grid, uint3 group, void (*entry)()) {
  kernel_entry = entry;
  group_size = group;
  auto groups = [](uint32_t threads, uint32_t size) { return (threads + size - 1) / size; };
  if (grid.x % group.x || grid.y % group.y || grid.z % group.z)
    fault("grid", "the grid is no multiple of its groups");
  n_groups = {groups(grid.x, group.x), groups(grid.y, group.y), groups(grid.z, group.z)};
  fibres = std::vector<Fibre>(group.x * group.y * group.z);
  for (group_position.z = 0; group_position.z < n_groups.z; ++group_position.z)
    for (group_position.y = 0; group_position.y < n_groups.y; ++group_position.y)
      for (group_position.x = 0; group_position.x < n_groups.x; ++group_position.x) {
        run_group();
        ++n_groups_done;
      }
}

} // namespace emulator

// ---- Metal's own words, as far as the kernels use them

using uint = uint32_t;
using emulator::uint3;

/// A 16-bit float: every operation rounds once to nearest even, as Metal's does.
template <class Format> struct Small {
  uint16_t bits = 0;
  Small() = default;
  Small(float value) : bits(Format::narrow(value)) {}
  Small(int value) : Small(float(value)) {}
  operator float() const { return Format::widen(bits); }
  friend Small operator+(Small a, Small b) { return Small(float(a) + float(b)); }
  friend Small operator-(Small a, Small b) { return Small(float(a) - float(b)); }
  friend Small operator*(Small a, Small b) { return Small(float(a) * float(b)); }
  friend Small operator/(Small a, Small b) { return Small(float(a) / float(b)); }
};

struct Bfloat {
  static float widen(uint16_t bits) {
    uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
  static uint16_t narrow(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    if (std::isnan(value)) return uint16_t(word >> 16 | 0x40);
    return uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
};

struct Half {
  static float widen(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float size = exponent == 0 ? std::ldexp(float(mantissa), -24)
        : exponent == 31      ? (mantissa ? NAN : INFINITY)
                              : std::ldexp(float(1024 + mantissa), exponent - 25);
    return bits & 0x8000 ? -size : size;
  }
  static uint16_t narrow(float value) {
    uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    float size = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < 6.103515625e-5f) return sign | uint16_t(std::nearbyint(std::ldexp(size, 24)));
    int exponent;
    float fraction = std::frexp(size, &exponent); // fraction in [0.5, 1)
    uint32_t mantissa = uint32_t(std::nearbyint(std::ldexp(fraction, 11)));
    return sign | uint16_t(((exponent + 13) << 10) + mantissa);
  }
};

using half = Small<Half>;
using bfloat16_t = Small<Bfloat>;
using bfloat = bfloat16_t;
using float16_t = half;

template <class T, int N> struct vec {
  T elements[N];
  T& operator[](int i) { return elements[check(i)]; }
  const T& operator[](int i) const { return elements[check(i)]; }
  static int check(int i) {
    if (i < 0 || i >= N) emulator::fault("out-of-bounds", emulator::who() + " at " + std::to_string(i) + " of a vector of " + std::to_string(N));
    return i;
  }
};

template <class To, class From> To as_type(From bits) {
  static_assert(sizeof(To) == sizeof(From));
  To value;
  std::memcpy(&value, &bits, sizeof(To));
  return value;
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

#define threadgroup_barrier(flags) ((void)(flags), ::emulator::meet(::emulator::Wait::barrier, __LINE__))
#define simdgroup_barrier(flags) ((void)(flags), (void)::emulator::simd('s', 0, 0, __LINE__))
#define simd_sum(value) (float(::emulator::simd('+', (value), 0, __LINE__)))
#define simd_max(value) (float(::emulator::simd('>', (value), 0, __LINE__)))
#define simd_min(value) (float(::emulator::simd('<', (value), 0, __LINE__)))
#define simd_shuffle(value, lane) (float(::emulator::simd('s', (value), (lane), __LINE__)))
#define simd_shuffle_xor(value, mask) (float(::emulator::simd('^', (value), (mask), __LINE__)))
#define simd_shuffle_down(value, delta) (float(::emulator::simd('d', (value), (delta), __LINE__)))

namespace metal {
namespace precise {
inline float exp(float x) { return std::exp(x); }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float cos(float x) { return std::cos(x); }
inline float sin(float x) { return std::sin(x); }
} // namespace precise
inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
} // namespace metal

#define thread_index_in_threadgroup (::emulator::current)
#define thread_position_in_threadgroup                                                     \
  (uint3{::emulator::current % ::emulator::group_size.x,                                   \
      ::emulator::current / ::emulator::group_size.x % ::emulator::group_size.y,           \
      ::emulator::current / (::emulator::group_size.x * ::emulator::group_size.y)})
#define threadgroup_position_in_grid (::emulator::group_position)
#define threadgroups_per_grid (::emulator::n_groups)
#define threads_per_threadgroup (::emulator::group_size)
#define thread_index_in_simdgroup (::emulator::current % 32u)
#define simdgroup_index_in_threadgroup (::emulator::current / 32u)
#define threads_per_simdgroup (32u)
#define thread_position_in_grid                                                                                  \
  (uint3{thread_position_in_threadgroup.x + ::emulator::group_position.x * ::emulator::group_size.x,             \
      thread_position_in_threadgroup.y + ::emulator::group_position.y * ::emulator::group_size.y,                \
      thread_position_in_threadgroup.z + ::emulator::group_position.z * ::emulator::group_size.z})

// The address space of buffers.
#define device
