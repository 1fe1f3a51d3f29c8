// Loops and arrays of Warp's C++ of a kernel, for the optimiser to see through. Stands before a kernel that only runs forward.
//
// Warp's `range` packs two whole numbers in one word, which every turn of a loop then takes apart, and an index of Warp's arrays
// may be negative and its columns anywhere. Here a loop counts, no index is negative, and the last index walks through memory
// without gaps, as in all arrays that `buffers` makes. No number comes out otherwise, except where the compiler may fuse and
// reorder sums and products: then by rounding.
namespace wp {

/// What Python's `range` goes through.
struct Steps {
    long long start, end, step, i;
    CUDA_CALLABLE Steps() : start(0), end(0), step(1), i(0) { }
    CUDA_CALLABLE Steps(int end) : start(0), end(end), step(1), i(0) { }
    CUDA_CALLABLE Steps(long long start, long long end, long long step = 1) : start(start), end(end), step(step), i(start) { }
};
inline CUDA_CALLABLE int iter_next(Steps& r)
{
    int now = int(r.i);
    r.i += r.step;
    return now;
}
inline CUDA_CALLABLE bool iter_cmp(const Steps& r) { return r.step > 0 ? r.i < r.end : r.step < 0 && r.i > r.end; }

/// Whether x is an index in dimension n of an array whose last index walks without gaps; asked where Warp's mode is "debug".
template <typename T> inline CUDA_CALLABLE bool inside(const array_t<T>& a, int n, int x)
{
    return x >= 0 && x < a.shape.dims[n] && a.strides[a.ndim - 1] == int(sizeof(T));
}
/// What lies so many bytes behind the start of an array.
template <typename T> inline CUDA_CALLABLE T* behind(const array_t<T>& a, size_t bytes) { return (T*)((char*)a.data + bytes); }
template <typename T> inline CUDA_CALLABLE T* at(const array_t<T>& a, int i)
{
    assert(inside(a, 0, i));
    return a.data + i;
}
template <typename T> inline CUDA_CALLABLE T* at(const array_t<T>& a, int i, int j)
{
    assert(inside(a, 0, i) && inside(a, 1, j));
    return behind(a, i * size_t(a.strides[0])) + j;
}
template <typename T> inline CUDA_CALLABLE T* at(const array_t<T>& a, int i, int j, int k)
{
    assert(inside(a, 0, i) && inside(a, 1, j) && inside(a, 2, k));
    return behind(a, i * size_t(a.strides[0]) + j * size_t(a.strides[1])) + k;
}
template <typename T> inline CUDA_CALLABLE void store_at(const array_t<T>& a, int i, const T& value) { *at(a, i) = value; }
template <typename T> inline CUDA_CALLABLE void store_at(const array_t<T>& a, int i, int j, const T& value)
{
    *at(a, i, j) = value;
}
template <typename T> inline CUDA_CALLABLE void store_at(const array_t<T>& a, int i, int j, int k, const T& value)
{
    *at(a, i, j, k) = value;
}

}  // namespace wp

#define range_t Steps
#define range Steps
#define address at
#define array_store store_at
