/* NCCL's id of a communicator, from rank 0 to the others by a file. Both return whether it is done. */
#pragma once
#include <stdio.h>
#include <unistd.h>

#include <nccl.h>

/* The file is whole as soon as it has its name. */
static inline int leave_id(const char* path, const ncclUniqueId* id) {
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) return 0;
    FILE* file = fopen(part, "wb");
    if (file == NULL) return 0;
    const int written = fwrite(id, sizeof *id, 1, file) == 1;
    return fclose(file) == 0 && written && rename(part, path) == 0;
}

/* Waits for it, for a minute at most. */
static inline int take_id(const char* path, ncclUniqueId* id) {
    FILE* file = NULL;
    for (int i = 0; i < 6000 && (file = fopen(path, "rb")) == NULL; ++i) usleep(10000);
    if (file == NULL) return 0;
    const int read = fread(id, sizeof *id, 1, file) == 1;
    fclose(file);
    return read;
}
