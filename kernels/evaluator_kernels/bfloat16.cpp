// Products of float32 activations with bfloat16 weights on CPUs that multiply bfloat16, accumulated in float32.
//
// oneDNN's microkernel does the work. It is reached through libtorch's own name for it, so that nothing but a compiler is needed.

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace c10 {
struct BFloat16;
}
namespace at::native::cpublas {
void brgemm(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, const c10::BFloat16*, const c10::BFloat16*, float*, bool);
void brgemm_release(bool);
}  // namespace at::native::cpublas

namespace {

constexpr int64_t kRows = 64, kColumns = 64, kLow = 16;

uint32_t bits(float x) {
    uint32_t b;
    std::memcpy(&b, &x, sizeof b);
    return b;
}

float number(uint32_t b) {
    float x;
    std::memcpy(&x, &b, sizeof x);
    return x;
}

// Upper half of the nearest bfloat16 number. Finite numbers stay finite: what would round to infinity is cut off instead.
uint32_t rounded(uint32_t b) {
    uint32_t near = b + 0x7fff + ((b >> kLow) & 1);
    bool finite = (b & 0x7f800000) != 0x7f800000, overflow = (near & 0x7f800000) == 0x7f800000;
    uint32_t quiet = (b & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0;  // a NaN whose bits are all in the lower half stays one
    return (finite && !overflow ? near : b | quiet) & 0xffff0000;
}

}  // namespace

// x [rows, width] as high + low, each [height, depth] bfloat16 and zero beyond x. low is zero where high isn't finite.
// `finite` (or null) gets high with zeros in place of infinities and NaN.
extern "C" void split(const float* x, int64_t rows, int64_t width, uint16_t* high, uint16_t* low, uint16_t* finite,
                      int64_t height, int64_t depth) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < height; row++) {
        uint16_t *h = high + row * depth, *l = low + row * depth, *f = finite ? finite + row * depth : nullptr;
        int64_t known = row < rows ? width : 0;
        for (int64_t at = 0; at < known; at++) {
            float value = x[row * width + at];
            uint32_t top = rounded(bits(value));
            bool plain = (top & 0x7f800000) != 0x7f800000;
            h[at] = top >> kLow;
            l[at] = plain ? rounded(bits(value - number(top))) >> kLow : 0;
        }
        std::memset(h + known, 0, 2 * (depth - known));
        std::memset(l + known, 0, 2 * (depth - known));
        for (int64_t at = 0; f && at < depth; at++) f[at] = (h[at] & 0x7f80) == 0x7f80 ? 0 : h[at];
    }
}

// y [rows, outputs] = sum over i < products of x[left[i]] · weights[right[i]]ᵀ + bias, all in float32.
// x: parts of [height, depth], height a multiple of 16. weights: parts of blocks of [depth / 2, 64, 2], for 64 outputs each.
// Returns whether this PyTorch has the microkernel on this processor.
extern "C" bool product(const uint16_t* x, const uint16_t* weights, const int64_t* left, const int64_t* right, int64_t products,
                        const float* bias, float* y, int64_t rows, int64_t height, int64_t depth, int64_t outputs) {
    using at::native::cpublas::brgemm;
    bool failed = false;
    int64_t across = (outputs + kColumns - 1) / kColumns, down = (height + kRows - 1) / kRows;
#pragma omp parallel
    {
        alignas(64) float edge[kRows * kColumns];
#pragma omp for collapse(2) schedule(static)
        for (int64_t j = 0; j < across; j++)
            for (int64_t i = 0; i < down; i++) {
                int64_t tall = std::min(kRows, height - i * kRows), wide = std::min(kColumns, outputs - j * kColumns);
                int64_t real = std::min(tall, rows - i * kRows);
                bool inside = real == tall && wide == kColumns;
                float* place = y + i * kRows * outputs + j * kColumns;
                float* tile = inside ? place : edge;
                int64_t step = inside ? outputs : kColumns;
                for (int64_t a = 0; a < tall; a++)
                    for (int64_t b = 0; b < kColumns; b++) tile[a * step + b] = bias && b < wide ? bias[j * kColumns + b] : 0;
                for (int64_t p = 0; p < products; p++) {
                    const uint16_t* a = x + (left[p] * height + i * kRows) * depth;
                    const uint16_t* b = weights + (right[p] * across + j) * depth * kColumns;
                    try {
                        brgemm(tall, kColumns, depth, depth, kColumns, step, true, reinterpret_cast<const c10::BFloat16*>(a),
                               reinterpret_cast<const c10::BFloat16*>(b), tile, true);
                    } catch (...) {
#pragma omp atomic write
                        failed = true;
                    }
                }
                for (int64_t a = 0; !inside && a < real; a++) std::memcpy(place + a * outputs, edge + a * kColumns, 4 * wide);
            }
        at::native::cpublas::brgemm_release(true);
    }
    return !failed;
}
