/* What makes a host wait for its GPU: each such call of CUDA's runtime is told by its name to a function (`gpu_on_wait`)
 * and then made by whoever has it, the pretended GPU that is preloaded behind this library, or CUDA itself.
 *
 * Preloaded into a process. Libraries that bring a runtime of their own (DALI, CUPTI) are not heard.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

#define API __attribute__((visibility("default")))

static void (*on_wait)(const char *);

API void gpu_on_wait(void (*function)(const char *)) { on_wait = function; }

static void waits(const char *what)
{
    if (on_wait)
        on_wait(what);
}

/* Python opens PyTorch's libraries for themselves, so that CUDA's is in no list that RTLD_NEXT goes through. */
static void *theirs(const char *name)
{
    char library[32];
    void *function = dlsym(RTLD_NEXT, name);
    snprintf(library, sizeof library, "libcudart.so.%d", CUDART_VERSION / 1000);
    return function ? function : dlsym(dlopen(library, RTLD_LAZY | RTLD_NOLOAD), name);
}

#define TELL(name, parameters, arguments)                                                                              \
    API cudaError_t name parameters                                                                                    \
    {                                                                                                                  \
        static cudaError_t(*function) parameters;                                                                      \
        if (!function)                                                                                                 \
            function = theirs(#name);                                                                                  \
        waits(#name);                                                                                                  \
        return function arguments;                                                                                     \
    }
TELL(cudaDeviceSynchronize, (void), ())
TELL(cudaStreamSynchronize, (cudaStream_t s), (s))
TELL(cudaEventSynchronize, (cudaEvent_t e), (e))
TELL(cudaMalloc, (void **at, size_t bytes), (at, bytes))
TELL(cudaFree, (void *at), (at))
TELL(cudaHostAlloc, (void **at, size_t bytes, unsigned flags), (at, bytes, flags))
TELL(cudaMemcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind), (to, from, bytes, kind))

/* From pageable memory, or to it, the host waits for its stream. */
static int pageable(const void *at)
{
    static cudaError_t (*ask)(struct cudaPointerAttributes *, const void *);
    struct cudaPointerAttributes a;
    if (!ask)
        ask = theirs("cudaPointerGetAttributes");
    return !ask(&a, at) && a.type == cudaMemoryTypeUnregistered;
}
API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
    static cudaError_t (*copy)(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
    if (!copy)
        copy = theirs("cudaMemcpyAsync");
    if (pageable(to))
        waits("copy to pageable memory");
    else if (pageable(from))
        waits("copy from pageable memory");
    return copy(to, from, bytes, kind, s);
}
