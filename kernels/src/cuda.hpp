// Metal's words for CUDA: what the kernels' bodies use, and no more.
#define device
#define threadgroup __shared__
#define threadgroup_barrier(flags) __syncthreads()
#define simdgroup_barrier(flags) __syncwarp()
#define thread_index_in_threadgroup (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))
#define thread_position_in_threadgroup (threadIdx)
#define threadgroup_position_in_grid (blockIdx)
#define threadgroups_per_grid (gridDim)
#define threads_per_threadgroup (blockDim)
#define thread_index_in_simdgroup (thread_index_in_threadgroup % 32u)
#define simdgroup_index_in_threadgroup (thread_index_in_threadgroup / 32u)
#define thread_position_in_grid                                                        \
  (make_uint3(threadIdx.x + blockIdx.x * blockDim.x, threadIdx.y + blockIdx.y * blockDim.y, \
      threadIdx.z + blockIdx.z * blockDim.z))
template <class T, int N> struct alignas(N * sizeof(T)) vec {
  T elements[N];
  __device__ T& operator[](int i) { return elements[i]; }
  __device__ const T& operator[](int i) const { return elements[i]; }
};
template <class To> __device__ inline To as_type(int bits) { return __int_as_float(bits); }
__device__ inline float simd_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}
__device__ inline float simd_max(float value) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
namespace metal { namespace precise {
__device__ inline float exp(float x) { return expf(x); }
__device__ inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
__device__ inline float cos(float x) { return cosf(x); }
__device__ inline float sin(float x) { return sinf(x); }
}}
