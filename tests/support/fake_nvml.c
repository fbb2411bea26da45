/* A library that answers as libnvidia-ml.so.1 does for one idle GPU, so that NVIDIA's real bindings can be run
   without one. NVML_INIT: code that initialisation returns. NVML_HANG_S: seconds it takes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;

static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
static int is_open = 0;

int nvmlInitWithFlags(unsigned flags) {
    if (number("NVML_HANG_S")) sleep(number("NVML_HANG_S"));
    is_open = number("NVML_INIT") == 0;
    return number("NVML_INIT");
}
const char *nvmlErrorString(int code) { return "words of the library"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "550.54.15", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return is_open ? 0 : 1; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)0x1234; return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { strncpy(text, "GPU-c0de", size); return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "NVIDIA Fake", size); return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { return 3; }
int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode) { *mode = 0; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *memory) {
    memory->total = 1000; memory->reserved = 100; memory->free = 600; memory->used = 300;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, utilization *rates) { rates->gpu = 42; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *list) {
    if (*count < 1) { *count = 1; return 7; }
    *count = 1;
    list[0].pid = getpid(); list[0].used = 250;
    list[0].gpu_instance = list[0].compute_instance = 0xFFFFFFFF;
    return 0;
}
