// The one clock of the Apple kernel that the Rust bindings ask for, to seed a random generator.
#include <cstdint>
#include <ctime>

/// Nanoseconds of the monotonic clock.
extern "C" uint64_t mach_approximate_time() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}
