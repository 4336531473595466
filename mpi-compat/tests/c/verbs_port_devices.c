/* As verbs_port, where TCP reaches the peers too: a port that is down for a second is waited for.
   ranks 2
   env FARSIDE_DEVICE=route FARSIDE_DEVICES=shm,verbs,tcp FARSIDE_TEST_NODES=2
   not on peers: they take no port down */
#include "verbs_port.c"
