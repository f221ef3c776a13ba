// A stand-in for NVIDIA's management library, for machines without a GPU.
//
// Its state is the folder $FAKE_NVML_STATE, which tests change while a server runs; fake_gpus.py describes it.
// Every call reads the folder again. A property that a line of `gpus` lacks is answered with "not supported".

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };

enum { XID_EVENT = 8, NO_INSTANCE = 0xFFFFFFFF, MAX_LINE = 1024, MAX_MIG = 7 };

typedef void *Device;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} Memory;

typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
} Process;

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

typedef struct {
    unsigned int gpu, memory;
} Utilization;

typedef struct {
    Device device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} Event;

static const char *state(void) {
    const char *folder = getenv("FAKE_NVML_STATE");
    return folder ? folder : "/nonexistent";
}

static FILE *open_state(const char *name) {
    char path[MAX_LINE];
    snprintf(path, sizeof path, "%s/%s", state(), name);
    return fopen(path, "r");
}

static int exists(const char *name) {
    char path[MAX_LINE];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", state(), name);
    return stat(path, &info) == 0;
}

// A driver that hangs answers no call.
static void wait_while_hung(void) {
    while (exists("hang")) usleep(10000);
}

// The value of `key` in a line of `key=value` separated by tabs; 0 if it has none.
static int value_of(const char *line, const char *key, char *value, size_t size) {
    size_t length = strlen(key);
    for (const char *field = line; field; field = strchr(field, '\t')) {
        if (*field == '\t') field++;
        if (strncmp(field, key, length) == 0 && field[length] == '=') {
            size_t end = strcspn(field + length + 1, "\t\n");
            snprintf(value, size, "%.*s", (int)end, field + length + 1);
            return 1;
        }
    }
    return 0;
}

static int number_of(const char *line, const char *key, unsigned long long *number) {
    char text[64];
    if (!value_of(line, key, text, sizeof text)) return 0;
    *number = strtoull(text, NULL, 10);
    return 1;
}

// The number of the card of a handle, and the place of its MIG device or -1.
static int card_of(Device device) { return (int)((size_t)device & 0xFFFF) - 1; }
static int place_of(Device device) { return (int)((size_t)device >> 16) - 1; }
static Device handle(int card, int place) { return (Device)(size_t)((card + 1) | ((place + 1) << 16)); }

// The line of a device; 0 if there is none. Lines of MIG devices have a place.
static int line_of(Device device, char *line) {
    FILE *gpus = open_state("gpus");
    int found = 0;
    while (gpus && !found && fgets(line, MAX_LINE, gpus)) {
        unsigned long long card = 0, place = 0;
        number_of(line, "gpu", &card);
        int has_place = number_of(line, "place", &place);
        found = (int)card == card_of(device) && (has_place ? (int)place : -1) == place_of(device);
    }
    if (gpus) fclose(gpus);
    return found;
}

static int text_property(Device device, const char *key, char *out, unsigned int size) {
    char line[MAX_LINE];
    wait_while_hung();
    if (!line_of(device, line)) return INVALID_ARGUMENT;
    return value_of(line, key, out, size) ? SUCCESS : NOT_SUPPORTED;
}

static int number_property(Device device, const char *key, unsigned int *out) {
    char line[MAX_LINE];
    unsigned long long number;
    wait_while_hung();
    if (!line_of(device, line)) return INVALID_ARGUMENT;
    if (!number_of(line, key, &number)) return NOT_SUPPORTED;
    *out = (unsigned int)number;
    return SUCCESS;
}

// The processes of a device: files `UUID.PID` with the bytes that they hold. The memory of a process that has
// ended is free, unless the file is `UUID.PID.linger`.
static unsigned int processes_of(Device device, Process *out, unsigned int size) {
    char uuid[96] = "", path[MAX_LINE];
    unsigned int count = 0;
    text_property(device, "uuid", uuid, sizeof uuid);
    snprintf(path, sizeof path, "%s/processes", state());
    DIR *folder = opendir(path);
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
        size_t length = strlen(uuid);
        if (strncmp(entry->d_name, uuid, length) != 0 || entry->d_name[length] != '.') continue;
        char *rest = NULL;
        unsigned int pid = (unsigned int)strtoul(entry->d_name + length + 1, &rest, 10);
        snprintf(path, sizeof path, "/proc/%u", pid);
        if (strcmp(rest, ".linger") != 0 && (*rest != '\0' || access(path, F_OK) != 0)) continue;
        snprintf(path, sizeof path, "processes/%s", entry->d_name);
        FILE *file = open_state(path);
        unsigned long long used = 0;
        if (file && fscanf(file, "%llu", &used) == 1) {
            if (count < size) out[count] = (Process){pid, used, NO_INSTANCE, NO_INSTANCE};
            count++;
        }
        if (file) fclose(file);
    }
    if (folder) closedir(folder);
    return count;
}

int nvmlInit_v2(void) {
    wait_while_hung();
    return exists("gpus") ? SUCCESS : DRIVER_NOT_LOADED;
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *version, unsigned int size) {
    snprintf(version, size, "570.86.15");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    char line[MAX_LINE];
    wait_while_hung();
    for (*count = 0; line_of(handle((int)*count, -1), line);) ++*count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device *device) {
    char line[MAX_LINE];
    *device = handle((int)index, -1);
    return line_of(*device, line) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    return text_property(device, "bus", pci->bus_id, sizeof pci->bus_id);
}

int nvmlDeviceGetMigMode(Device device, unsigned int *current, unsigned int *pending) {
    int result = number_property(device, "mig", current);
    *pending = *current;
    return result;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned int *count) {
    (void)device;
    *count = MAX_MIG;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned int place, Device *mig) {
    char line[MAX_LINE];
    *mig = handle(card_of(device), (int)place);
    return line_of(*mig, line) ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetUUID(Device device, char *uuid, unsigned int size) { return text_property(device, "uuid", uuid, size); }

int nvmlDeviceGetName(Device device, char *name, unsigned int size) { return text_property(device, "name", name, size); }

int nvmlDeviceGetMemoryInfo_v2(Device device, Memory *memory) {
    char line[MAX_LINE];
    Process processes[64];
    wait_while_hung();
    if (!line_of(device, line)) return INVALID_ARGUMENT;
    if (!number_of(line, "total", &memory->total)) return NOT_SUPPORTED;
    memory->used = memory->reserved = 0;
    number_of(line, "used", &memory->used);
    unsigned int count = processes_of(device, processes, 64);
    for (unsigned int n = 0; n < count; n++) memory->used += processes[n].used;
    memory->free = memory->used < memory->total ? memory->total - memory->used : 0;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device device, Utilization *rates) {
    rates->memory = 0;
    return number_property(device, "utilization", &rates->gpu);
}

int nvmlDeviceGetTemperature(Device device, int sensor, unsigned int *celsius) {
    (void)sensor;
    return number_property(device, "temperature", celsius);
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned int *count, Process *processes) {
    char line[MAX_LINE], hidden[8];
    wait_while_hung();
    if (!line_of(device, line)) return INVALID_ARGUMENT;
    if (value_of(line, "no_processes", hidden, sizeof hidden)) return NOT_SUPPORTED;
    unsigned int size = processes ? *count : 0;
    *count = processes_of(device, processes, size);
    // On some cards the driver knows the processes, and not their memory.
    for (unsigned int n = 0; n < *count && n < size; n++)
        if (value_of(line, "no_process_memory", hidden, sizeof hidden)) processes[n].used = ~0ULL;
    return *count > size ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types) {
    (void)device;
    *types = XID_EVENT;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device device, unsigned long long types, void *set) {
    (void)device, (void)types, (void)set;
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) {
    *set = calloc(1, sizeof(long));
    return SUCCESS;
}

int nvmlEventSetFree(void *set) {
    free(set);
    return SUCCESS;
}

// The lines of `xids` are events, `CARD XID`, each delivered once.
int nvmlEventSetWait_v2(void *set, Event *event, unsigned int timeout_ms) {
    long *position = set;
    for (unsigned int waited = 0; waited < timeout_ms; waited += 20) {
        FILE *xids = open_state("xids");
        int card = 0;
        unsigned long long xid = 0;
        int found = xids && fseek(xids, *position, SEEK_SET) == 0 && fscanf(xids, "%d %llu\n", &card, &xid) == 2;
        if (found) *position = ftell(xids);
        if (xids) fclose(xids);
        if (found) {
            *event = (Event){handle(card, -1), XID_EVENT, xid, NO_INSTANCE, NO_INSTANCE};
            return SUCCESS;
        }
        usleep(20000);
    }
    return TIMEOUT;
}
