/* Times MPI_Allreduce and MPI_Alltoallv as `symm bench` times its operations: all ranks begin together, a sample takes from the
 * first begin to the last end by the clock that the processes of one host share, results are checked outside the timed region.
 *
 * collectives allreduce|alltoallv BYTES SAMPLES ROW: BYTES are what each rank adds up, or sends in all, in rows of ROW bytes.
 * Rank 0 prints one line of JSON. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUES = 97, WARM_UP = 5 };

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *memory(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (p == NULL) {
        fprintf(stderr, "collectives: no %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return p;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, row = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    int samples = argc > 3 ? atoi(argv[3]) : 0;
    int vector = argc > 1 && strcmp(argv[1], "alltoallv") == 0;
    if (argc != 5 || samples < 1 || row == 0 || bytes < row || (!vector && strcmp(argv[1], "allreduce") != 0)) {
        if (rank == 0) fprintf(stderr, "usage: collectives allreduce|alltoallv BYTES SAMPLES ROW\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t count = bytes / sizeof(float), rows = bytes / row;
    float *in = memory(bytes), *out = memory(bytes + (size_t)ranks * row);
    for (size_t i = 0; i < count; i++) in[i] = (float)((i + 13 * (size_t)rank) % VALUES);
    int *send = memory(sizeof(int) * ranks), *send_at = memory(sizeof(int) * ranks);
    int *receive = memory(sizeof(int) * ranks), *receive_at = memory(sizeof(int) * ranks);
    /* As even as rows are, the odd ones going to other ranks from each: what symm bench vdev does. */
    size_t sent = 0, received = 0;
    for (int d = 0; d < ranks; d++) {
        size_t to = rows / ranks + ((size_t)(d + rank) % ranks < rows % ranks);
        size_t from = rows / ranks + ((size_t)(rank + d) % ranks < rows % ranks);
        send[d] = (int)to, send_at[d] = (int)sent, sent += to;
        receive[d] = (int)from, receive_at[d] = (int)received, received += from;
    }
    MPI_Datatype row_type;
    MPI_Type_contiguous((int)row, MPI_BYTE, &row_type);
    MPI_Type_commit(&row_type);
    int64_t *mine = memory(2 * sizeof(int64_t) * samples), *all = memory(2 * sizeof(int64_t) * samples * ranks);
    for (int s = -WARM_UP; s < samples; s++) {
        MPI_Barrier(MPI_COMM_WORLD);
        int64_t begin = now();
        if (vector)
            MPI_Alltoallv(in, send, send_at, row_type, out, receive, receive_at, row_type, MPI_COMM_WORLD);
        else
            MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        int64_t end = now();
        if (s >= 0) mine[2 * s] = begin, mine[2 * s + 1] = end;
    }
    long wrong = 0, all_wrong = 0;
    if (vector) {
        size_t per = row / sizeof(float);
        for (int source = 0; source < ranks; source++) {
            size_t first = 0;
            for (int d = 0; d < rank; d++) first += rows / ranks + ((size_t)(d + source) % ranks < rows % ranks);
            for (size_t i = 0; i < (size_t)receive[source] * per; i++) {
                float expected = (float)((first * per + i + 13 * (size_t)source) % VALUES);
                wrong += out[(size_t)receive_at[source] * per + i] != expected;
            }
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            float expected = 0;
            for (int r = 0; r < ranks; r++) expected += (float)((i + 13 * (size_t)r) % VALUES);
            wrong += out[i] != expected;
        }
    }
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Gather(mine, 2 * samples, MPI_INT64_T, all, 2 * samples, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        double *us = memory(sizeof(double) * samples);
        for (int s = 0; s < samples; s++) {
            int64_t first = INT64_MAX, last = 0;
            for (int r = 0; r < ranks; r++) {
                int64_t *span = all + 2 * ((size_t)r * samples + s);
                first = span[0] < first ? span[0] : first;
                last = span[1] > last ? span[1] : last;
            }
            us[s] = (last - first) / 1e3;
        }
        qsort(us, samples, sizeof(double), by_value);
        char version[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(version, &length);
        version[strcspn(version, ",\n")] = 0;
        printf("{\"mpi\": \"%s\", \"p50_us\": %.3f, \"min_us\": %.3f, \"wrong\": %ld}\n", version, us[(samples - 1) / 2], us[0], all_wrong);
    }
    MPI_Finalize();
    return all_wrong != 0;
}
