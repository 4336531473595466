/* Buffers of messages are used again and again, and the process forks meanwhile: a child has its own copy of them, as
   they were at the moment of the fork.
   ranks 2
   not on peers: not promised */
#include "buffers.h"
#include "fork.h"

enum { BUFFERS = 3 };

static const size_t lengths[BUFFERS] = {50 * 1000, 500 * 1000, 3 * 1000 * 1000};
static unsigned char *buffers[BUFFERS];

static void in_child(Child *child, int seed) {
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < BUFFERS; i++) CHECK(is_exchanged(buffers[i], lengths[i], seed + i));
        if (again == 0) hear(child->to_child);
    }
    for (int i = 0; i < BUFFERS; i++) memset(buffers[i], 99, lengths[i]);
    tell(child->to_parent);
    hear(child->to_child);
    for (int i = 0; i < BUFFERS; i++) free(buffers[i]);
    end_child();
}

int main(void) {
    begin_exchanges();
    for (int i = 0; i < BUFFERS; i++) buffers[i] = malloc(lengths[i]);
    for (int seed = 0; seed < 40; seed += 10) {
        Child child;
        for (int i = 0; i < BUFFERS; i++) exchange(buffers[i], lengths[i], seed + i);
        if (begin_child(&child)) in_child(&child, seed);
        for (int i = 0; i < BUFFERS; i++) exchange(buffers[i], lengths[i], seed + i + 5);
        tell(child.to_child);
        hear(child.to_parent);
        for (int i = 0; i < BUFFERS; i++) CHECK(is_exchanged(buffers[i], lengths[i], seed + i + 5));
        tell(child.to_child);
        CHECK(ended_well(&child));
        for (int i = 0; i < BUFFERS; i++) CHECK(is_exchanged(buffers[i], lengths[i], seed + i + 5));
    }
    for (int i = 0; i < BUFFERS; i++) free(buffers[i]);
    return finish();
}
