/* The control protocol on demand (docs/protocol.md), for exhaustive checking with spin.
 *
 * A scenario (scenarios.py) defines: NL launches, NK keys, NC circuits, and the tables below as bit masks:
 *   after(l)    launches of the same rank that must be finished before l's gate is reached
 *               (stream order, events, and order within a communicator family)
 *   members(k)  launches that meet at key k
 *   keys(l)     keys of launch l
 *   needs(l)    circuits of all its keys;  light(k) circuits of one key
 *   clash(c)    circuits that share a port with c
 *
 * What is abstract: a transfer is one event, possible when every member of its key has started and its
 * circuits carry light (the transport retries for ever, so a suspended launch only waits). Messages are
 * asynchronous and unordered between ranks. Time is absent: T_break may pass at any moment, a switch takes
 * any time. Variables are named as in controller/core.
 *
 * Checked: no launch starts in the dark (I1), no circuit moves under a launch in flight (I2), a gang starts
 * whole (I3, by construction of grant), and every execution ends with every launch done (I4, I7: no invalid
 * end state, and with -DPROGRESS no fair cycle without progress).
 */

/* Launch, as its rank sees it. */
#define IDLE 0
#define READY 1
#define STARTED 2
#define FINISHED 3
/* Launch, as the controller sees it. */
#define ABSENT 0
#define DEMANDED 1
#define IN_FLIGHT 2
#define SUSPENDED 3
#define DONE 4

byte at_rank[NL];
byte at_controller[NL];
byte ticket[NL];
byte next_ticket = 1;

int finished = 0;         /* mask of launches whose kernel has ended */
int started = 0;          /* mask of launches past their gate */
int transferred = 0;      /* mask of keys whose data has arrived */
int lit = 0;              /* mask of circuits that carry light */
int moving = 0;           /* mask of circuits on their way */

int go_sent = 0;          /* mask of launches whose grant is on its way or there */

int after[NL]; int members[NK]; int keys[NL]; int needs[NL]; int light[NK]; int clash[NC];

/* Scratch of schedule(), zero between its runs so that it adds no states. */
byte l, k, i, j;
int component, need, reserved, in_flight, full_keys, missing, busy, want, order_mask, frontier;
bool grew, joiner, head_seen;

#define NONE 255
byte head_victim = NONE;

inline compute_masks() {
    in_flight = 0; full_keys = 0; busy = moving;
    for (i : 0 .. NL - 1) {
        if
        :: at_controller[i] == IN_FLIGHT -> in_flight = in_flight | (1 << i); busy = busy | needs[i]
        :: else
        fi
    }
    for (i : 0 .. NK - 1) {
        missing = 0;
        for (j : 0 .. NL - 1) {
            if
            :: (members[i] & (1 << j)) && at_controller[j] == ABSENT -> missing = 1
            :: else
            fi
        }
        if
        :: !missing -> full_keys = full_keys | (1 << i)
        :: else
        fi
    }
}

/* The component of not-done launches over full keys that launch l is in. */
inline compute_component(whose) {
    component = 1 << whose; grew = true;
    do
    :: grew ->
        grew = false;
        for (i : 0 .. NK - 1) {
            if
            :: (full_keys & (1 << i)) && (members[i] & component) ->
                frontier = 0;
                for (j : 0 .. NL - 1) {
                    if
                    :: (members[i] & (1 << j)) && at_controller[j] != DONE -> frontier = frontier | (1 << j)
                    :: else
                    fi
                }
                if
                :: (component | frontier) != component -> component = component | frontier; grew = true
                :: else
                fi
            :: else
            fi
        }
    :: else -> break
    od
}

inline clashing(which, result) {
    result = 0;
    for (i : 0 .. NC - 1) {
        if
        :: (which & (1 << i)) -> result = result | clash[i]
        :: else
        fi
    }
}

/* One look at all gangs in ticket order: grant, begin to move, or reserve. Sets head_victim to a launch that
 * the first waiting gang could suspend, or NONE. */
inline schedule() {
#ifndef NO_OPUS
    d_step {
        compute_masks();
        for (l : 0 .. NL - 1) {  /* tickets: when a launch first has a full key; after suspension anew */
            if
            :: (at_controller[l] == DEMANDED || at_controller[l] == SUSPENDED) && ticket[l] == 0 && (keys[l] & full_keys) ->
                ticket[l] = next_ticket; next_ticket++
            :: else
            fi
        }
        reserved = 0; head_victim = NONE; head_seen = false; order_mask = 0;
        do
        :: true ->
            /* the unprocessed launch with the oldest ticket */
            l = NONE;
            for (j : 0 .. NL - 1) {
                if
                :: (at_controller[j] == DEMANDED || at_controller[j] == SUSPENDED) && ticket[j] != 0 && !(order_mask & (1 << j)) ->
                    if
                    :: l == NONE -> l = j
                    :: else -> if :: ticket[j] < ticket[l] -> l = j :: else fi
                    fi
                :: else
                fi
            }
            if
            :: l == NONE -> break
            :: else
            fi
            compute_component(l);
            order_mask = order_mask | component;
            need = 0; joiner = false;
            for (j : 0 .. NL - 1) {
                if
                :: component & (1 << j) -> need = need | needs[j]
                :: else
                fi
            }
#ifndef NO_JOINERS
            joiner = (component & in_flight) != 0;
#endif
            clashing(need, want);            /* circuits on the ports it needs */
            want = want | need;
#ifdef UNION_OF_KEYS
            for (j : 0 .. NL - 1) {
                if
                :: (component & (1 << j)) && (keys[j] & ~full_keys) -> need = 0
                :: else
                fi
            }
#endif
            if
            :: need == 0                     /* only with UNION_OF_KEYS: not complete */
            :: need != 0 && (need & lit) == need && !(need & moving) && (joiner || !(want & reserved)) ->
                for (j : 0 .. NL - 1) {
                    if
                    :: (component & (1 << j)) && at_controller[j] == DEMANDED ->
                        at_controller[j] = IN_FLIGHT; ticket[j] = 0; go_sent = go_sent | (1 << j); busy = busy | needs[j]
                    :: (component & (1 << j)) && at_controller[j] == SUSPENDED ->
                        at_controller[j] = IN_FLIGHT; ticket[j] = 0; busy = busy | needs[j]
                    :: else
                    fi
                }
                in_flight = in_flight | component
            :: else ->
                clashing(need & ~lit, missing);
                if
                :: !(missing & busy) && !(want & reserved) && !(need & moving) ->
#ifdef CHECK
                    for (j : 0 .. NL - 1) { assert(!(at_controller[j] == IN_FLIGHT && (needs[j] & missing))) }
#endif
                    lit = lit & ~missing;
                    moving = moving | (need & ~lit);
                    busy = busy | moving
                :: else ->
                    if
                    :: !head_seen && (missing & busy) ->
                        for (j : 0 .. NL - 1) {
                            if
                            :: at_controller[j] == IN_FLIGHT && (needs[j] & missing) && (keys[j] & ~full_keys) -> head_victim = j
                            :: else
                            fi
                        }
                    :: else
                    fi
                fi;
                reserved = reserved | want;
                head_seen = true
            fi
        od;
        l = 0; i = 0; j = 0; component = 0; need = 0; want = 0; missing = 0; frontier = 0; order_mask = 0;
        reserved = 0; busy = 0; in_flight = 0; grew = false; joiner = false; full_keys = 0; head_seen = false
    }
#else
    skip
#endif
}

/* The life of one launch: each step is one message or one event, taken at any moment after it is possible. */
proctype launch(byte me) {
    atomic { (finished & after[me]) == after[me] -> at_rank[me] = READY };     /* gate reached */
    atomic { at_controller[me] = DEMANDED; schedule() };                      /* demand arrives */
    atomic { (go_sent & (1 << me)) != 0 ->                                    /* grant arrives: go */
#ifdef CHECK
        assert(at_controller[me] == SUSPENDED || (needs[me] & lit) == needs[me]);
#endif
        at_rank[me] = STARTED; started = started | (1 << me) };
    atomic { (transferred & keys[me]) == keys[me] -> at_rank[me] = FINISHED; finished = finished | (1 << me) };
progress:
    atomic { at_controller[me] = DONE; schedule() }                            /* done arrives */
}

proctype transfer(byte of_key) {
    atomic { (started & members[of_key]) == members[of_key] && (lit & light[of_key]) == light[of_key] ->
        transferred = transferred | (1 << of_key) }
}

/* The switch confirms: any time after the command. */
active proctype glass() {
end:
    do
    :: atomic { moving != 0 -> lit = lit | moving; moving = 0; schedule() }
    od
}

#if !defined(NO_SUSPENSION) && !defined(NO_OPUS)
/* T_break passes: any time after the head gang began to wait. */
active proctype breaker() {
end:
    do
    :: atomic { head_victim != NONE ->
        at_controller[head_victim] = SUSPENDED; ticket[head_victim] = 0; head_victim = NONE; schedule() }
    od
}
#endif

init {
    atomic {
        tables();
#ifdef NO_OPUS
        lit = (1 << NC) - 1;                        /* a packet network: every circuit at once, no gate */
        go_sent = (1 << NL) - 1;
#endif
        for (l : 0 .. NL - 1) { run launch(l) }
        for (k : 0 .. NK - 1) { run transfer(k) }
        l = 0; k = 0
    };
    finished == (1 << NL) - 1
}
