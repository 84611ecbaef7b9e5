// A libcuda that does nothing but remember: for tests of the hooks, built with the C compiler.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t u64;
typedef void *handle;

u64 fake_calls;          // real launches, copies and memsets
u64 fake_last[16];       // arguments of the last launch
int fake_result;         // answer of the next op
int fake_capturing;      // 0 none, 1 active
u64 fake_free = 16ull << 30, fake_total = 16ull << 30;
u64 fake_frees, fake_managed, fake_plain;
int fake_no_managed;     // managed memory is out
int fake_more_params;     // parameters of 4 bytes that every function has besides its own
u64 fake_prefetches;     // calls, and what the last one was asked
u64 fake_prefetch[5];    // address, bytes, place, stream, the thread's capture mode
int fake_refuses_prefetch;
static __thread int fake_mode;
int fake_info_calls;     // calls of the name and parameter queries

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuCtxGetCurrent(handle *c) { *c = (handle)0x1000; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 89; return 0; }
int cuDeviceGetUuid_v2(uint8_t *u, int d) { memset(u, 0xfa, 16); return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = fake_free; *t = fake_total; return 0; }
static u64 next_address = 0x7a0000000000ull;
static u64 take(size_t n) {
  u64 a = next_address;
  next_address += (n + (4 << 20)) & ~((2ull << 20) - 1);
  return a;
}
int cuMemAlloc_v2(u64 *p, size_t n) {
  if (n > fake_free) return 2;
  fake_plain++; *p = take(n); return 0;
}
int cuMemAllocManaged(u64 *p, size_t n, unsigned flags) {
  if (flags != 1) return 1;
  if (fake_no_managed) return 2;
  fake_managed++; *p = take(n); return 0;
}
int cuMemAllocPitch_v2(u64 *p, size_t *pitch, size_t w, size_t h, unsigned e) {
  *pitch = (w + 511) & ~511ull; *p = take(*pitch * h); fake_plain++; return 0;
}
typedef struct { int kind, id; } location;
int cuMemPrefetchAsync_v2(u64 p, size_t n, location l, unsigned flags, handle s) {
  u64 asked[] = {p, n, (u64)l.kind << 32 | l.id, (u64)s, fake_mode};
  memcpy(fake_prefetch, asked, sizeof asked); fake_prefetches++;
  return fake_refuses_prefetch ? 801 : 0;
}
int cuThreadExchangeStreamCaptureMode(int *m) { int was = fake_mode; fake_mode = *m; *m = was; return 0; }
int cuStreamCreate(handle *s, unsigned flags) { *s = (handle)(0x5000ull + flags); return 0; }
int cuMemFree_v2(u64 p) { fake_frees++; int r = fake_result; fake_result = 0; return r; }
int cuPointerGetAttribute(void *d, int a, u64 p) {
  if (a == 8) *(unsigned *)d = 1; else *(unsigned *)d = 1; return 0;
}
int cuPointerGetAttributes(unsigned n, int *k, void **d, u64 p) {
  for (unsigned i = 0; i < n; i++) {
    if (k[i] == 4) *(u64 *)d[i] = p; else *(unsigned *)d[i] = 1;
  }
  return 0;
}
// A function's number of parameters stands above its lowest 16 bits; 0 means 3.
int cuFuncGetName(const char **n, handle f) {
  fake_info_calls++;
  u64 which = (u64)f & 0xffff;
  if (which == 0x500) return 400;
  *n = which == 0x600 ? "other" : which == 0x1400 ? "kernel_b" : which == 0x1600 ? "kernel_c" : "kernel_a";
  return 0;
}
int cuKernelGetName(const char **n, handle f) { *n = "as_kernel"; return 0; }
int cuFuncGetParamInfo(handle f, size_t i, size_t *o, size_t *s) {
  fake_info_calls++;
  static const size_t sizes[3] = {8, 24, 4};
  u64 own = (u64)f >> 16 ? (u64)f >> 16 : 3;
  if (i >= own + fake_more_params) return 1;
  *o = 24 * i; *s = i < own ? sizes[i % 3] : 4; return 0;
}
int cuKernelGetParamInfo(handle f, size_t i, size_t *o, size_t *s) {
  return cuFuncGetParamInfo(f, i, o, s);
}
static int op(void) { fake_calls++; int r = fake_result; fake_result = 0; return r; }
int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, handle stream, void **params, void **extra) {
  u64 all[11] = {(u64)f, gx, gy, gz, bx, by, bz, shared, (u64)stream, (u64)params, (u64)extra};
  memcpy(fake_last, all, sizeof all); return op();
}
int cuLaunchKernel_ptsz(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned s, handle stream, void **params, void **extra) {
  fake_last[0] = 7; return op();
}
int cuLaunchCooperativeKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, handle stream,
                              void **params) {
  u64 all[10] = {(u64)f, gx, gy, gz, bx, by, bz, shared, (u64)stream, (u64)params};
  memcpy(fake_last, all, sizeof all); return op();
}
int cuLaunchKernelEx(const void *config, handle f, void **params, void **extra) {
  u64 all[4] = {(u64)config, (u64)f, (u64)params, (u64)extra};
  memcpy(fake_last, all, sizeof all); return op();
}
int cuMemsetD8Async(u64 d, unsigned char v, size_t n, handle s) { fake_last[1] = v; return op(); }
int cuMemsetD2D32Async(u64 d, size_t p, unsigned v, size_t w, size_t h, handle s) {
  fake_last[0] = d; fake_last[5] = (u64)s; fake_last[2] = v; return op();
}
int cuMemcpyDtoDAsync_v2(u64 d, u64 s, size_t n, handle st) { return op(); }
int cuStreamSynchronize(handle s) { return 0; }
int cuStreamDestroy_v2(handle s) { fake_capturing = 0; return 0; }
int cuStreamIsCapturing(handle s, int *c) { *c = fake_capturing; return 0; }
int cuStreamBeginCapture_v2(handle s, int mode) { fake_capturing = 1; return 0; }
int cuStreamEndCapture(handle s, handle *g) { fake_capturing = 0; *g = (handle)0x9000; return 0; }
int cuModuleUnload(handle m) { return 0; }
// A graph of one kernel and one memset.
u64 fake_node_pointer;
static void *node_params[3];
static u64 node_words[3];
int cuGraphInstantiateWithFlags(handle *e, handle g, u64 flags) { *e = (handle)0xa000; return 0; }
int cuGraphGetNodes(handle g, handle *nodes, size_t *n) {
  if (nodes) { nodes[0] = (handle)1; nodes[1] = (handle)2; }
  *n = 2; return 0;
}
int cuGraphNodeGetType(handle n, int *t) { *t = (u64)n == 1 ? 0 : 2; return 0; }
int cuGraphKernelNodeGetParams_v2(handle n, void *out) {
  u64 *w = out;
  memset(out, 0, 72);
  w[0] = 0x400;
  node_words[0] = fake_node_pointer;
  for (int i = 0; i < 3; i++) node_params[i] = &node_words[0];
  static u64 zero[3];
  node_params[1] = zero; node_params[2] = zero;
  w[5] = (u64)node_params; return 0;
}
int cuGraphMemsetNodeGetParams(handle n, void *out) {
  memset(out, 0, 40); *(u64 *)out = fake_node_pointer + 64; return 0;
}
int cuGraphLaunch(handle e, handle s) { return op(); }
int cuGraphExecDestroy(handle e) { return 0; }
int cuGetProcAddress_v2(const char *name, void **out, int version, u64 flags, int *status) {
  *out = 0;
  if (!name[0]) { if (status) *status = 1; return 500; }
  const char *export = name;
  if (!strcmp(name, "cuLaunchKernel")) export = flags & 2 ? "cuLaunchKernel_ptsz" : name;
  if (!strcmp(name, "cuMemAlloc")) export = "cuMemAlloc_v2";
  if (!strcmp(name, "cuGetProcAddress")) export = "cuGetProcAddress_v2";
  *out = dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), export);
  if (status) *status = *out ? 0 : 1;
  return *out ? 0 : 500;
}
