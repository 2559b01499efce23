/* A libnvidia-ml.so.1 with the GPUs of the file that STUB_NVML names, read at every call.
   Lines: gpus N | ecc GPU N | xid GPU N | process GPU PID MIB | remap GPU PENDING FAILED |
   gone GPU | used GPU MIB | busy GPU PERCENT | slow GPU REASONS | hang | broken GPU |
   a100 GPU | v100 GPU (a GPU of this name; else an H100). What is not here is a function that a driver lacks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint64_t total, free, used; } memory_t;
typedef struct { unsigned pid; uint64_t used; unsigned instance, compute; } process_t;
typedef struct { void *device; uint64_t type, data; unsigned instance, compute; } event_t;
typedef struct { unsigned gpu, memory; } rates_t;

static int seen_events;

static int lookup(const char *word, int gpu, int nth, long *a, long *b) {
    FILE *file = fopen(getenv("STUB_NVML"), "r");
    char line[256], name[32];
    int found = 0, count = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        long x = -1, y = 0, z = 0;
        if (sscanf(line, "%31s %ld %ld %ld", name, &x, &y, &z) < 1 || strcmp(name, word)) continue;
        if (gpu >= 0 && x != gpu) continue;
        if (count++ != nth) continue;
        if (a) *a = gpu >= 0 ? y : x;
        if (b) *b = z;
        found = 1;
        break;
    }
    fclose(file);
    return found;
}
static int index_of(void *device) { return (int)(intptr_t)device - 1; }

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "stub error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.1", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    long n = 0;
    lookup("gpus", -1, 0, &n, 0);
    *count = n;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (lookup("gone", index, 0, 0, 0)) return 15;
    *device = (void *)(intptr_t)(index + 1);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-stub-%d", index_of(device));
    return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    int gpu = index_of(device);
    const char *name = lookup("a100", gpu, 0, 0, 0)   ? "NVIDIA A100-SXM4-80GB"
                       : lookup("v100", gpu, 0, 0, 0) ? "Tesla V100-SXM2-32GB"
                                                      : "NVIDIA H100 80GB HBM3";
    strncpy(text, name, size);
    return 0;
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { *minor = index_of(device); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    long used = 0;
    if (lookup("hang", -1, 0, 0, 0)) for (;;) pause();
    if (lookup("broken", index_of(device), 0, 0, 0)) return 15;
    lookup("used", index_of(device), 0, &used, 0);
    memory->total = 80ull << 30;
    memory->used = (uint64_t)used << 20;
    memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, rates_t *rates) {
    long busy = 0;
    if (!lookup("busy", index_of(device), 0, &busy, 0)) return 3;
    rates->gpu = busy;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, uint64_t *count) {
    long n = 0;
    lookup("ecc", index_of(device), 0, &n, 0);
    *count = n;
    return 0;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    long p = 0, f = 0;
    lookup("remap", index_of(device), 0, &p, &f);
    *corrected = *uncorrected = 0;
    *pending = p;
    *failed = f;
    return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, uint64_t *reasons) {
    long bits = 0;
    if (!lookup("slow", index_of(device), 0, &bits, 0)) return 3;
    *reasons = bits;
    return 0;
}
int nvmlDeviceGetP2PStatus(void *one, void *two, int what, int *status) {
    long size = 1 << 20; // GPUs of one NVLink domain; all of them, if nothing is said
    lookup("domain", 0, 0, &size, 0);
    *status = one == two || index_of(one) / size != index_of(two) / size;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *found) {
    unsigned n = 0;
    long pid, mib;
    while (lookup("process", index_of(device), n, &pid, &mib)) {
        if (found && n < *count) {
            found[n].pid = pid;
            found[n].used = (uint64_t)mib << 20;
            found[n].instance = found[n].compute = 0xffffffff;
        }
        n++;
    }
    if (n > *count) { *count = n; return 7; }
    *count = n;
    return 0;
}
int nvmlEventSetCreate(void **set) { *set = (void *)1; return 0; }
int nvmlDeviceGetSupportedEventTypes(void *device, uint64_t *types) { *types = 8; return 0; }
int nvmlDeviceRegisterEvents(void *device, uint64_t types, void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned timeout) {
    long gpu, number;
    FILE *file = fopen(getenv("STUB_NVML"), "r");
    char line[256];
    int count = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "xid %ld %ld", &gpu, &number) != 2 || count++ != seen_events) continue;
        seen_events++;
        memset(event, 0, sizeof *event);
        event->device = (void *)(intptr_t)(gpu + 1);
        event->type = 8;
        event->data = number;
        fclose(file);
        return 0;
    }
    if (file) fclose(file);
    return 10;
}
