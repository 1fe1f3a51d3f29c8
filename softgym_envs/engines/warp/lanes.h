// Rows of a batch beside each other in one thread: Warp's C++ of a kernel, read with another meaning of two types and one word.
//
// Stands before a generated kernel (see lanes.py), behind the number of rows, SOFTGYM_LANES. From here on, `wp::float64`
// is one number of each row, `bool` one answer of each, and the body of an `if` runs when any row wants it. Warp gives a
// variable that a branch changes its value by `where(condition, changed, unchanged)`, which chooses row by row. What else a
// branch does, it would do to all rows: so a kernel for lanes writes to arrays only where all rows do. Integers are the same
// for all rows. No number of a row depends on the rows beside it, nor on how many there are: every operation works lane by
// lane and rounds by itself, as no two are fused.
namespace wp {

constexpr int LANES = SOFTGYM_LANES;

typedef double Numbers __attribute__((ext_vector_type(LANES), aligned(8)));
typedef decltype(Numbers() < Numbers()) Answers;

struct Mask {
    long long lane[LANES];
    CUDA_CALLABLE constexpr Mask() : lane {} { }
    CUDA_CALLABLE constexpr Mask(bool all) : lane {}
    {
        for (int k = 0; k < LANES; ++k)
            lane[k] = -all;
    }
    CUDA_CALLABLE Mask(Answers given) { __builtin_memcpy(lane, &given, sizeof(lane)); }
    CUDA_CALLABLE Answers answers() const
    {
        Answers out;
        __builtin_memcpy(&out, lane, sizeof(lane));
        return out;
    }
};

struct Real {
    Numbers lane;
    CUDA_CALLABLE Real() : lane(0.0) { }
    CUDA_CALLABLE Real(Numbers given) : lane(given) { }
    CUDA_CALLABLE Real(double all) : lane(all) { }
    CUDA_CALLABLE Real(float all) : lane(double(all)) { }
    CUDA_CALLABLE Real(int all) : lane(double(all)) { }
    CUDA_CALLABLE Real& operator+=(Real b)
    {
        lane += b.lane;
        return *this;
    }
    CUDA_CALLABLE Real& operator-=(Real b)
    {
        lane -= b.lane;
        return *this;
    }
};

// --- numbers ---------------------------------------------------------------------------------------------------------

inline CUDA_CALLABLE Real operator+(Real a, Real b) { return a.lane + b.lane; }
inline CUDA_CALLABLE Real operator-(Real a, Real b) { return a.lane - b.lane; }
inline CUDA_CALLABLE Real operator*(Real a, Real b) { return a.lane * b.lane; }
inline CUDA_CALLABLE Real operator/(Real a, Real b) { return a.lane / b.lane; }
inline CUDA_CALLABLE Real operator-(Real a) { return -a.lane; }
inline CUDA_CALLABLE Real add(Real a, Real b) { return a + b; }
inline CUDA_CALLABLE Real sub(Real a, Real b) { return a - b; }
inline CUDA_CALLABLE Real mul(Real a, Real b) { return a * b; }
inline CUDA_CALLABLE Real div(Real a, Real b) { return a / b; }
inline CUDA_CALLABLE Real neg(Real a) { return -a; }
inline CUDA_CALLABLE Real min(Real a, Real b) { return __builtin_elementwise_min(a.lane, b.lane); }
inline CUDA_CALLABLE Real max(Real a, Real b) { return __builtin_elementwise_max(a.lane, b.lane); }
inline CUDA_CALLABLE Real clamp(Real x, Real a, Real b) { return min(max(a, x), b); }
inline CUDA_CALLABLE Real abs(Real a) { return __builtin_elementwise_abs(a.lane); }
inline CUDA_CALLABLE Real floor(Real a) { return __builtin_elementwise_floor(a.lane); }
inline CUDA_CALLABLE Real sqrt(Real a) { return __builtin_elementwise_sqrt(a.lane); }
inline CUDA_CALLABLE Real each(double (*f)(double), Real a)
{
    Numbers out;
    for (int k = 0; k < LANES; ++k)
        out[k] = f(a.lane[k]);
    return out;
}
inline CUDA_CALLABLE Real sin(Real a) { return each(::sin, a); }
inline CUDA_CALLABLE Real cos(Real a) { return each(::cos, a); }
inline CUDA_CALLABLE Real tanh(Real a) { return each(::tanh, a); }
inline CUDA_CALLABLE Real exp(Real a) { return each(::exp, a); }
inline CUDA_CALLABLE Real cbrt(Real a) { return each(::cbrt, a); }
inline CUDA_CALLABLE Real pow(Real a, Real b)
{
    Numbers out;
    for (int k = 0; k < LANES; ++k)
        out[k] = ::pow(a.lane[k], b.lane[k]);
    return out;
}

// --- answers ---------------------------------------------------------------------------------------------------------

inline CUDA_CALLABLE Mask operator<(Real a, Real b) { return a.lane < b.lane; }
inline CUDA_CALLABLE Mask operator>(Real a, Real b) { return a.lane > b.lane; }
inline CUDA_CALLABLE Mask operator<=(Real a, Real b) { return a.lane <= b.lane; }
inline CUDA_CALLABLE Mask operator>=(Real a, Real b) { return a.lane >= b.lane; }
inline CUDA_CALLABLE Mask operator==(Real a, Real b) { return a.lane == b.lane; }
inline CUDA_CALLABLE Mask operator!=(Real a, Real b) { return a.lane != b.lane; }
inline CUDA_CALLABLE Mask operator!(Mask a) { return ~a.answers(); }
inline CUDA_CALLABLE Mask operator&&(Mask a, Mask b) { return a.answers() & b.answers(); }
inline CUDA_CALLABLE Mask operator||(Mask a, Mask b) { return a.answers() | b.answers(); }
inline CUDA_CALLABLE Mask unot(Mask a) { return !a; }
inline CUDA_CALLABLE bool any(bool a) { return a; }
inline CUDA_CALLABLE bool any(Mask a) { return __builtin_reduce_or(a.answers()) != 0; }

inline CUDA_CALLABLE Real choose(Mask where, Real a, Real b) { return where.answers() ? a.lane : b.lane; }

/// a where the condition holds, b elsewhere, for whatever consists of numbers.
template <typename T> inline CUDA_CALLABLE T where(const Mask& condition, const T& a, const T& b)
{
    static_assert(sizeof(T) % sizeof(Real) == 0, "a branch may change numbers only");
    T out;
    for (unsigned k = 0; k < sizeof(T) / sizeof(Real); ++k)
        ((Real*)&out)[k] = choose(condition, ((const Real*)&a)[k], ((const Real*)&b)[k]);
    return out;
}
inline CUDA_CALLABLE Mask where(const Mask& condition, const Mask& a, const Mask& b)
{
    return (condition && a) || (!condition && b);
}
inline CUDA_CALLABLE Real sign(Real a) { return choose(a < Real(0.0), Real(-1.0), Real(1.0)); }
/// The largest of the rows' whole numbers.
inline CUDA_CALLABLE int largest(Real a)
{
    int out = int(a.lane[0]);
    for (int k = 1; k < LANES; ++k)
        out = max(out, int(a.lane[k]));
    return out;
}
/// Integers are the same for all rows, and so is what changes them.
inline CUDA_CALLABLE int where(const Mask& condition, const int& a, const int& b) { return any(condition) ? a : b; }

// --- what Warp's own functions decide by branches ----------------------------------------------------------------------

inline CUDA_CALLABLE quat_t<Real> normalize(const quat_t<Real>& q)
{
    Real l = length(q);
    Real inverse = Real(1.0) / l;
    quat_t<Real> turned(q.x * inverse, q.y * inverse, q.z * inverse, q.w * inverse);
    return where(l > Real(kEps), turned, quat_t<Real>(Real(0.0), Real(0.0), Real(0.0), Real(1.0)));
}

template <> inline CUDA_CALLABLE mat_t<3, 3, Real> inverse(const mat_t<3, 3, Real>& m)
{
    Real det = determinant(m);
    mat_t<3, 3, Real> b;
    b.data[0][0] = m.data[1][1] * m.data[2][2] - m.data[1][2] * m.data[2][1];
    b.data[1][0] = m.data[1][2] * m.data[2][0] - m.data[1][0] * m.data[2][2];
    b.data[2][0] = m.data[1][0] * m.data[2][1] - m.data[1][1] * m.data[2][0];
    b.data[0][1] = m.data[0][2] * m.data[2][1] - m.data[0][1] * m.data[2][2];
    b.data[1][1] = m.data[0][0] * m.data[2][2] - m.data[0][2] * m.data[2][0];
    b.data[2][1] = m.data[0][1] * m.data[2][0] - m.data[0][0] * m.data[2][1];
    b.data[0][2] = m.data[0][1] * m.data[1][2] - m.data[0][2] * m.data[1][1];
    b.data[1][2] = m.data[0][2] * m.data[1][0] - m.data[0][0] * m.data[1][2];
    b.data[2][2] = m.data[0][0] * m.data[1][1] - m.data[0][1] * m.data[1][0];
    return where(det != Real(0.0), b * (Real(1.0) / det), mat_t<3, 3, Real>());
}

/// An entry of a table that all rows share, at places of their own.
inline CUDA_CALLABLE Real entry(array_t<Real>& table, Real i, Real j)
{
    Numbers out;
    for (int k = 0; k < LANES; ++k)
        out[k] = address(table, int32_t(i.lane[k]), int32_t(j.lane[k]))->lane[k];
    return out;
}

/// The number of the thread, where a template parameter of Warp's has become a Mask.
template <Mask, int N> inline int linear_tid(size_t index, const launch_bounds_t<N>& bounds) { return tid(index, bounds); }

}  // namespace wp

#define float64 Real
#define bool wp::Mask
#define if(...) if (wp::any(__VA_ARGS__))
