/*
 * libfpga: cards, card memory and collectives. Generated from tools/capi/src by cbindgen: see tools/capi/tests/library.rs.
 *
 * Every function that can fail returns an fpga_status. fpga_error_text() has the text of the calling thread's last failure.
 * Pointers to data must lead to as many bytes as the function is told, which no other thread changes during the call; NULL is
 * refused, unless there are 0 bytes. Texts are UTF-8 and end with a zero byte. The library keeps no pointer of the caller.
 *
 * Threads: a cluster and its collectives are used by one thread at a time; a second one gets FPGA_BUSY and nothing is done. A
 * thread that is cancelled (pthread_cancel) during a call ends after it.
 *
 * Time limits do not cover a vfio-user server that does not answer: it delays a call by up to 5 s, then its card is gone.
 *
 * Forked processes: handles are not inherited. With the parent's, every call returns FPGA_USAGE and touches no card.
 */

#ifndef FPGA_H
#define FPGA_H

#include <stddef.h>
#include <stdint.h>

/**
 * What functions return. 1 to 7 mean what the exit codes of fpgactl mean; 3 is fpgactl's alone.
 */
typedef enum fpga_status {
  /**
   * Done.
   */
  FPGA_OK = 0,
  /**
   * The operation failed.
   */
  FPGA_FAILED = 1,
  /**
   * An argument is invalid: NULL, an unknown name, a handle that was closed or that belongs to the process that forked this one.
   */
  FPGA_USAGE = 2,
  /**
   * A card does not exist, or this user may not open it.
   */
  FPGA_NO_CARD = 4,
  /**
   * A time limit expired.
   */
  FPGA_TIMEOUT = 5,
  /**
   * A card or a link is gone.
   */
  FPGA_GONE = 6,
  /**
   * Refused before anything was launched.
   */
  FPGA_REFUSED = 7,
  /**
   * Another thread is using the cluster. Nothing was done.
   */
  FPGA_BUSY = 8,
  /**
   * An error of the library itself: close the cluster, and report the text.
   */
  FPGA_INTERNAL = 9
} fpga_status;

/**
 * Cards of one fabric. The pointer is a handle: it leads nowhere, and no two clusters of a process ever have the same.
 *
 * A cluster and its collectives are used by one thread at a time; a second one gets FPGA_BUSY.
 */
typedef struct fpga_cluster fpga_cluster;

/**
 * A collective that is planned, and stored on the cards. The pointer is a handle, as that of a cluster.
 *
 * All collectives of a cluster use the same card memory, so one is in flight at a time: write the input, launch, wait and read
 * the output before the next.
 */
typedef struct fpga_collective fpga_collective;

/**
 * What a card is. Later versions add fields at the end only.
 */
typedef struct fpga_card {
  /**
   * Card memory, bytes.
   */
  uint64_t memory_bytes;
  /**
   * Bit n: the card runs the operation of code n (docs/isa.md).
   */
  uint64_t operations;
  /**
   * Bit n: reductions take elements of the type of code n.
   */
  uint32_t element_types;
  /**
   * Bit n: the card has the reduction of code n.
   */
  uint32_t reductions;
  /**
   * Node in the fabric.
   */
  uint32_t node;
  /**
   * Cards in the fabric.
   */
  uint32_t nodes;
  /**
   * Links of the card.
   */
  uint32_t ports;
  /**
   * Exchanges that it runs at once.
   */
  uint32_t lanes;
  /**
   * Clock of the counters, kHz.
   */
  uint32_t clock_khz;
  /**
   * 1 if the card is a mock, on whatever bus; else 0.
   */
  uint32_t is_mock;
  /**
   * Kind of the bus: "mock", "vfio" or "vfio-user". Valid for ever.
   */
  const char *kind;
  /**
   * Bytes of the name that fpga_cluster_card_name copies, the zero byte included.
   */
  size_t name_bytes;
} fpga_card;

/**
 * What is to be planned, by the names of fpgactl. Start with {0}: later versions add fields at the end, for which 0 means
 * "as before".
 */
typedef struct fpga_request {
  /**
   * The operation, such as "allreduce". Vector forms, such as "allgatherv", are refused.
   */
  const char *operation;
  /**
   * The reduction, such as "sum"; NULL if the operation does not reduce.
   */
  const char *reduction;
  /**
   * The type of the elements, such as "f32"; NULL if the operation does not reduce.
   */
  const char *element;
  /**
   * The algorithm, such as "ring"; NULL for the one with the earliest predicted arrival.
   */
  const char *algorithm;
  /**
   * Bytes, as fpgactl counts them: a block of each rank.
   */
  uint64_t bytes;
  /**
   * Root, or sender: a rank, which is the index of a card.
   */
  uint32_t root;
  /**
   * Receiver of a send.
   */
  uint32_t peer;
} fpga_request;

/**
 * What was planned. Later versions add fields at the end only.
 */
typedef struct fpga_plan {
  /**
   * Predicted time until the last byte arrives at the last rank, microseconds.
   */
  double predicted_us;
  /**
   * Number of ranks.
   */
  uint32_t ranks;
  /**
   * Always 0.
   */
  uint32_t reserved;
} fpga_plan;

/**
 * Times of a launch, counted by the cards: the largest over the ranks, in microseconds from the issue on each. Later versions
 * add fields at the end only.
 */
typedef struct fpga_times {
  /**
   * T1: all beats of the last instruction counted out.
   */
  double t1_us;
  /**
   * T2: the last instruction complete.
   */
  double t2_us;
  /**
   * The last byte counted in; 0 if none was.
   */
  double arrival_us;
} fpga_times;

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/**
 * Opens the cards of a selector, such as "mock:optweb:4" or "vfio:0000:3b:00.0", as a cluster. The cards are ordered by node.
 * After an error *cluster is unchanged.
 */
int fpga_cluster_open(const char *selector,
                      struct fpga_cluster **cluster);

/**
 * Closes a cluster and all its collectives; what is in flight is aborted. If it returns FPGA_BUSY, the cluster is still open.
 */
int fpga_cluster_close(struct fpga_cluster *cluster);

/**
 * Stores the number of cards in *count.
 */
int fpga_cluster_cards(struct fpga_cluster *cluster, uint32_t *count);

/**
 * Stores what card `index` is in the first `bytes` bytes of *card: pass sizeof(fpga_card). Zeros bytes that this version of the
 * library does not know.
 */
int fpga_cluster_card(struct fpga_cluster *cluster,
                      uint32_t index,
                      struct fpga_card *card,
                      size_t bytes);

/**
 * Copies the name of card `index`, its selector, to `bytes` bytes at `name`, a zero byte included. fpga_card has the bytes that
 * it needs; with fewer, the call returns FPGA_USAGE.
 */
int fpga_cluster_card_name(struct fpga_cluster *cluster,
                           uint32_t index,
                           char *name,
                           size_t bytes);

/**
 * Sets how long a call may take that has no time limit of its own: memory, data, plans.
 */
int fpga_cluster_set_timeout(struct fpga_cluster *cluster, uint64_t timeout_us);

/**
 * Writes `bytes` bytes at `data` to the memory of card `index` at `address`.
 */
int fpga_memory_write(struct fpga_cluster *cluster,
                      uint32_t index,
                      uint64_t address,
                      const void *data,
                      size_t bytes);

/**
 * Reads `bytes` bytes of the memory of card `index` at `address` to `data`. After an error the content of `data` is undefined.
 */
int fpga_memory_read(struct fpga_cluster *cluster,
                     uint32_t index,
                     uint64_t address,
                     void *data,
                     size_t bytes);

/**
 * Plans a collective on all cards of a cluster, verifies it and stores it on the cards. `bytes` is sizeof(fpga_request). After an
 * error *collective is unchanged.
 */
int fpga_collective_plan(struct fpga_cluster *cluster,
                         const struct fpga_request *request,
                         size_t bytes,
                         struct fpga_collective **collective);

/**
 * Stores what was planned in the first `bytes` bytes of *plan: pass sizeof(fpga_plan). Zeros bytes that this version of the library
 * does not know.
 */
int fpga_collective_describe(struct fpga_collective *collective,
                             struct fpga_plan *plan,
                             size_t bytes);

/**
 * Copies the name of the algorithm to `bytes` bytes at `name`, a zero byte included. 16 are enough.
 */
int fpga_collective_algorithm(struct fpga_collective *collective, char *name, size_t bytes);

/**
 * Stores the bytes of a rank's input and output; 0 for a rank without one.
 */
int fpga_collective_bytes(struct fpga_collective *collective,
                          uint32_t rank,
                          uint64_t *input,
                          uint64_t *output);

/**
 * Writes `bytes` bytes at `data` to byte `offset` and on of a rank's input.
 */
int fpga_collective_write(struct fpga_collective *collective,
                          uint32_t rank,
                          uint64_t offset,
                          const void *data,
                          size_t bytes);

/**
 * Reads `bytes` bytes from byte `offset` and on of a rank's output to `data`. After an error the content of `data` is undefined.
 */
int fpga_collective_read(struct fpga_collective *collective,
                         uint32_t rank,
                         uint64_t offset,
                         void *data,
                         size_t bytes);

/**
 * Launches a collective: one doorbell a card. Returns at once. A launch may be repeated once it is done. FPGA_REFUSED if a collective
 * of the cluster is in flight; and if the last launch has replaced the inputs (an alltoall for which a card has no room for input
 * and output), until the input of every rank is written again. A write of any part of an input counts.
 */
int fpga_collective_launch(struct fpga_collective *collective);

/**
 * Stores 1 in *is_done if all ranks are done with the last launch, else 0. Never waits. It finds out a card that is gone within
 * 200 ms: then it returns FPGA_GONE, and the launch is over. FPGA_REFUSED if there was no launch, or it failed or was aborted.
 */
int fpga_collective_test(struct fpga_collective *collective,
                         int *is_done);

/**
 * Waits until all ranks are done with the last launch, for at most `timeout_us` microseconds. Returns at once if they are. After
 * FPGA_TIMEOUT the launch goes on: wait again, or abort it. After another error it is over, and the output is undefined.
 * FPGA_REFUSED if there was no launch, or it failed or was aborted.
 */
int fpga_collective_wait(struct fpga_collective *collective,
                         uint64_t timeout_us);

/**
 * Stores the times of the last launch in the first `bytes` bytes of *times: pass sizeof(fpga_times). Zeros bytes that this version
 * of the library does not know. FPGA_REFUSED if it is not done.
 */
int fpga_collective_times(struct fpga_collective *collective,
                          struct fpga_times *times,
                          size_t bytes);

/**
 * Stores a descriptor that becomes readable when a launch may be done, for poll and epoll. Whenever it is, call
 * fpga_collective_test, which says whether the launch is done, and readies the descriptor for the next event. Once no launch is in
 * flight, fpga_collective_test, _wait and _abort make it unreadable until the next launch; an interrupt that comes late, or a call that
 * moves data, may wake a program once more. A card that is gone raises no event: wake up every second to test. The descriptor is the
 * cluster's: do not read or close it. It is closed with the cluster.
 */
int fpga_collective_event(struct fpga_collective *collective,
                          int *descriptor);

/**
 * Ends the launch in flight, if there is one. Its output is undefined; the collective may be launched again.
 */
int fpga_collective_abort(struct fpga_collective *collective);

/**
 * Removes a collective from the cards. The handle is closed, unless the call returns FPGA_BUSY or FPGA_INTERNAL.
 */
int fpga_collective_release(struct fpga_collective *collective);

/**
 * Returns the version of the library, such as "0.1.0". Valid for ever.
 */
const char *fpga_version(void);

/**
 * Returns what a status means, in a few words. Valid for ever.
 */
const char *fpga_status_text(int status);

/**
 * Returns the text of the last call that failed on this thread: what is wrong, the value, and the causes. Empty before the first.
 * Valid until the next call that fails on this thread, or the thread ends; calls that succeed keep it.
 */
const char *fpga_error_text(void);

/**
 * Returns the rank that failed in the last call that failed on this thread; -1 if none is known.
 */
int64_t fpga_error_rank(void);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* FPGA_H */
