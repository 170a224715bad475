/* The flag protocol of flags.h as a model for spin: showing a call, meeting, the lease of memory,
 * the doorbell, the release of the group. tests/model/flags_full_test.py explores all states of 2
 * ranks with 2 calls, of 3 ranks with 1, and of 3 ranks with 2 calls where no failure strikes
 * (-DFAULTY=0). 3 ranks with 2 calls and a failure are too many states to keep: flags_long_test.py
 * explores as many as it can in its time, with hashes of states for the states.
 *
 * Each inline is named after the function that it models. RANKS ranks of one host make CALLS
 * calls, each of a kind that is drawn: small (payload in the slots), direct (everyone reads every
 * piece and writes its slice into every out), staged (through bounce buffers, with a meeting in
 * between). The caller waits for each call, or starts the next one first. At most one failure
 * strikes, at any point: a deadline, an abort, a death, a stop for good, of 2 ranks also the end of
 * the socket between them.
 *
 * Checked:
 *     lost wakeup      every rank ends, or spin finds an invalid end state. Only who waits for a
 *                      rank that is dead, stopped or cut off has a timer: no other sleep ends by
 *                      itself.
 *     memory           no rank writes into memory that its owner's caller has back; none reads
 *                      a flag block that is freed
 *     bytes            a call that returns OK has the right bytes
 *     failure          without a failure no call fails. A rank that has failed starts no further
 *                      call. No rank returns OK from a call that another rank had not shown when it
 *                      gave the group up, nor from a call through memory that starts after that.
 *                      (A small call that the failed rank has shown may end well: its bytes are
 *                      there. The one after that fails.)
 *
 * Spin interleaves whole transitions, and a store is seen by all at once. So each transition says
 * under ORDER why the code, whose memory orders are weaker, does no more than the model. A
 * condition over all ranks is one transition where each part stays true once it is (shown, phase,
 * done).
 *
 * Left out: fingerprints (a mismatch fails as an abort does), ranks of other hosts, messages,
 * rings, the pages of other groups, the looks in the midst of a long copy (a look more, no touch
 * more), the 5 ms between two looks at what is wrong, ranks that leave the job.
 *
 * -DBREAK_x takes one rule away; spin must then find an error. The test has the table.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define SLOTS 1 /* TT_FLAG_SLOTS is 8; with 1, the second call needs the slot of the first */

#define SMALL 1
#define DIRECT 2
#define STAGED 3

#define VICTIM 0 /* any: all ranks do the same */

#define FAILED 1 /* tt_failure_pack of an error */
#define LEFT 2   /* of TUTTI_END */

#define AT(rank, call) ((rank) * (CALLS + 1) + (call))

/* The others, in this order: which of them is asked first does not matter. */
#define OTHER(k) ((me + (k)) % RANKS)

#if RANKS == 2
#define ALL(p) (p(0) && p(1))
#define ANY(p) (p(0) || p(1))
#define FOR_OTHERS(act) act(1)
#else
#define ALL(p) (p(0) && p(1) && p(2))
#define ANY(p) (p(0) || p(1) || p(2))
#define FOR_OTHERS(act) act(1); act(2)
#endif

/* What is drawn. */
bit is_faulty;
byte kind[CALLS + 1];

/* The flag blocks. */
byte slot_sequence[RANKS], slot_payload[RANKS]; /* the call whose payload or places it holds */
byte done[RANKS], phase[RANKS], failure[RANKS], stage[RANKS];
bit inside[RANKS];
bit quiet[RANKS * RANKS]; /* [owner, watcher] */
bit is_freed[RANKS];

/* The doorbells, in the node peer blocks, which outlive every group. */
bit doorbell[RANKS], is_asleep[RANKS];

/* The callers' memory, by rank and call. */
bit is_lent[RANKS * (CALLS + 1)];     /* between start and the return */
bit is_replaced[RANKS * (CALLS + 1)]; /* others' mappings lead to other pages */
bit is_piece_right[RANKS * (CALLS + 1)];
bit is_out_right[RANKS * (CALLS + 1) * RANKS]; /* by slice */
byte shown[RANKS];

bit is_dead[RANKS], is_stopped[RANKS], is_due[RANKS];
bit is_cut[RANKS]; /* it and the others take each other for dead, and it goes on */
bit is_out[RANKS]; /* all its calls have returned */
bit has_struck; /* the one failure */

#define HAS_FAILED(r) (failure[r] == FAILED)
#define IS_CUT(r) (is_cut[r] || is_cut[me])
#ifndef BREAK_CUT
#define IS_GONE(r) (is_dead[r]) /* tt_node_peers_is_gone */
#else
#define IS_GONE(r) (is_dead[r] || IS_CUT(r))
#endif
#define IS_INSIDE(r) (r != me && inside[r] && !IS_GONE(r))
#define IS_QUIET(r) (r == me || quiet[me * RANKS + r] || IS_GONE(r))
#define OUT(rank, slice) is_out_right[AT(rank, call) * RANKS + (slice)]
#define BLOCK_IS_THERE(r) (!is_freed[r] || is_dead[r])
#define HAS_COME(r) (slot_sequence[r] == call)
#define HAS_MET(r) (phase[r] >= call)
#define IS_DONE(r) (done[r] >= call)
#define MAY_POST(r) (done[r] + SLOTS >= showing + 1)
#define IS_STUCK(r) (is_dead[r] || is_stopped[r])
#define IS_STOPPED(r) (is_stopped[r])
#define IS_OUT(r) (is_out[r] || IS_STUCK(r))

/* tt_coll_watch, look_for_the_gone: a follower's cause, or one that is gone and still needed. The
 * failure word is loaded with acquire, and who leaves has stored its `done` before it. */
#define IS_WRONG(r) \
    (r != me && (failure[r] == FAILED || \
                 ((is_dead[r] || IS_CUT(r) || failure[r] == LEFT) && done[r] < call)))

/* tt_coll_wake_node_peers, tt_node_peers_wake. The load of the doorbell and the exchange are one
 * transition: in between only another waker or the owner can set it to 0, and the exchange then
 * finds that.
 * ORDER: the doorbell is loaded relaxed right after a release store of the flag: it may be loaded
 * before the store is seen (x86 too). The sleeper then looks at the flags for ARM_NS after its own
 * store, longer than a store buffer holds a store; a wake-up that is missed all the same costs
 * SLEEP_NS. */
inline tt_node_peers_wake(k)
{
    if
    :: atomic { doorbell[OTHER(k)] == 1 -> doorbell[OTHER(k)] = 0 };
       is_asleep[OTHER(k)] = 0 /* tt_futex_wake_all */
    :: else
    fi
}

inline tt_coll_wake_node_peers()
{
    FOR_OTHERS(tt_node_peers_wake)
}

/* tt_coll_publish, after the slot is written.
 * ORDER: the sequence is stored with release and loaded with acquire: who sees it sees the payload,
 * as here, where the payload is stored first. */
inline tt_coll_post()
{
#ifdef BREAK_SEQUENCE
    atomic { showing++; slot_sequence[me] = showing; shown[me] = showing };
    slot_payload[me] = showing;
#else
    atomic { showing++; slot_payload[me] = showing };
    atomic { slot_sequence[me] = showing; shown[me] = showing };
#endif
    tt_coll_wake_node_peers()
}

/* ORDER: done is stored with release after the last load from the slot, and loaded with acquire
 * before the slot is written: the write cannot be seen by a load before it. The copy all_done only
 * lags behind. */
#ifdef BREAK_SLOT
#define TT_COLL_MAY_POST (showing < started)
#else
#define TT_COLL_MAY_POST (showing < started && ALL(MAY_POST))
#endif

inline draw_kind()
{
    if
    :: kind[started] != 0
#ifdef KIND
    :: kind[started] == 0 -> kind[started] = KIND
#else
    :: kind[started] == 0 -> kind[started] = SMALL
    :: kind[started] == 0 -> kind[started] = DIRECT
    :: kind[started] == 0 -> kind[started] = STAGED
#endif
    fi
}

inline tt_coll_start()
{
    atomic {
        started++;
        draw_kind();
        is_late[started] = ANY(HAS_FAILED);
        is_lent[AT(me, started)] = 1;
        is_piece_right[AT(me, started)] = 1
    }
    if
    :: TT_COLL_MAY_POST -> tt_coll_post()
    :: else /* QUEUED */
    fi
}

/* F1, and the doorbell.
 * ORDER: seq_cst, as are E1, E2, F2, L1, L2: in their one order they interleave as here. */
inline tt_coll_give_up()
{
    if
    :: atomic { status == 0 -> assert(is_faulty); status = FAILED; failure[me] = FAILED };
#ifndef BREAK_WAKE
       tt_coll_wake_node_peers()
#endif
    :: else
    fi
}

/* The wait of a call, and of F2: progress, look whether something is wrong, arm the doorbell, look
 * once more, sleep. `condition` is what progress waits for.
 * ORDER: the doorbell is stored seq_cst before the second look; the futex compares it under the
 * kernel's lock, so an exchange before the sleep ends it at once, and one after it wakes. */
#define HAS_TIMER (is_due[me] || ANY(IS_STUCK) || ANY(IS_CUT))

inline futex_wait()
{
    atomic {
        if
        :: doorbell[me] == 1 -> is_asleep[me] = 1
        :: else
        fi
    }
    atomic { is_asleep[me] == 0 || HAS_TIMER -> is_asleep[me] = 0 };
    doorbell[me] = 0 /* tt_node_peers_idle_end */
}

inline tt_node_peers_idle(something)
{
#ifdef BREAK_BELL
    doorbell[me] = 1;
    futex_wait()
#else
    doorbell[me] = 1;
    if
    :: something -> doorbell[me] = 0
    :: else -> futex_wait()
    fi
#endif
}

/* tt_coll_check_health gives up for a deadline, a rank that is gone, or one that has failed. Only
 * what has been drawn sets a deadline off; that of a rank that waits for a stopped one always
 * passes. */
inline tt_coll_wait(condition)
{
    do
    :: condition -> assert(ALL(BLOCK_IS_THERE)); break
    :: ANY(IS_WRONG) || is_due[me] || ANY(IS_STOPPED) -> tt_coll_give_up(); break
    :: TT_COLL_MAY_POST -> tt_coll_post() /* post_what_may_be_posted */
    :: else -> tt_node_peers_idle(condition || ANY(IS_WRONG) || TT_COLL_MAY_POST)
    od
}

/* tt_coll_is_given_up: one load after the other. */
inline load_failure(k)
{
    atomic {
        assert(BLOCK_IS_THERE(OTHER(k)));
        is_given_up = is_given_up || failure[OTHER(k)] == FAILED
    }
}

/* E1, E2 */
inline tt_coll_enter()
{
#ifdef BREAK_ENTER_LATE
    FOR_OTHERS(load_failure);
    inside[me] = 1;
#else
    inside[me] = 1;
#ifndef BREAK_ENTER
    FOR_OTHERS(load_failure)
#endif
#endif
}

/* L1, L2; the first also where E2 has found a failure. ORDER: L1 has release, F2 acquire: an owner
 * that sees 0 has what was written here. */
inline tt_coll_leave()
{
    if
    :: inside[me] ->
       inside[me] = 0;
#ifndef BREAK_LEAVE
       FOR_OTHERS(load_failure)
#endif
    :: else
    fi
}

/* Reads of memory that is returned are allowed as long as nothing comes of them. Places are read in
 * the slot. */
inline read_piece(k)
{
    is_right = is_right && slot_payload[OTHER(k)] == call && is_piece_right[AT(OTHER(k), call)]
}

inline write_out(k)
{
    atomic {
        if
        :: is_replaced[AT(OTHER(k), call)]
        :: else ->
           assert(is_lent[AT(OTHER(k), call)] || is_dead[OTHER(k)]);
           OUT(OTHER(k), me) = is_right
        fi
    }
}

/* run_small. ORDER: payload is read after an acquire load of its slot's sequence. */
inline read_slot(k)
{
    is_right = is_right && slot_payload[OTHER(k)] == call
}

inline write_own()
{
    atomic { OUT(me, 0) = is_right; OUT(me, 1) = is_right; OUT(me, RANKS - 1) = is_right }
}

inline run_small()
{
    is_right = 1;
    FOR_OTHERS(read_slot);
    write_own()
}

/* run_at_once of a direct plan */
inline run_direct()
{
    tt_coll_enter();
    if
    :: atomic { !is_given_up -> is_right = is_piece_right[AT(me, call)] };
       FOR_OTHERS(read_piece);
       OUT(me, me) = is_right;
       FOR_OTHERS(write_out)
    :: else
    fi
}

/* tt_coll_post_phase, tt_coll_have_reached. ORDER: release and acquire: who has met sees what was
 * copied before. */
inline run_barrier()
{
    phase[me] = call;
    tt_coll_wake_node_peers();
    tt_coll_wait(ALL(HAS_MET))
}

inline read_stage(k)
{
    is_right = is_right && stage[OTHER(k)] == call
}

inline run_staged()
{
    stage[me] = (is_piece_right[AT(me, call)] -> call : 0);
    run_barrier();
    if
    :: status == 0 ->
       tt_coll_enter();
       if
       :: atomic { !is_given_up -> is_right = stage[me] == call };
          FOR_OTHERS(read_stage);
          write_own()
       :: else
       fi
    :: else
    fi
}

/* ORDER: release, after the last touch: a rank that sees all done has what was written into its out. */
inline tt_coll_post_done()
{
    done[me] = call;
    tt_coll_wake_node_peers()
}

inline execute()
{
#ifdef BREAK_DONE
    tt_coll_post_done();
#endif
    if
    :: kind[call] == SMALL -> run_small()
    :: kind[call] == DIRECT -> run_direct()
    :: kind[call] == STAGED -> run_staged()
    fi;
    tt_coll_leave();
    if
    :: is_given_up -> is_given_up = 0; tt_coll_give_up() /* tt_coll_refuse, tt_coll_fail_call */
    :: else
    fi;
#ifndef BREAK_DONE
    if
    :: status == 0 -> tt_coll_post_done()
    :: else
    fi
#endif
}

/* POSTED, RUNNING, FINISHING */
inline advance()
{
    tt_coll_wait(ALL(HAS_COME));
    if
    :: status == 0 -> execute()
    :: else
    fi;
    if
    :: status == 0 && kind[call] != SMALL -> tt_coll_wait(ALL(IS_DONE))
    :: else
    fi
}

/* F2, F3. Nothing is asked of a rank that is dead. ORDER: F2 is seq_cst, see F1. */
inline tt_coll_quiesce()
{
#ifndef BREAK_QUIESCE
    do
    :: !ANY(IS_INSIDE) -> break
    :: ANY(IS_INSIDE) && (is_impatient || ANY(IS_STOPPED)) -> replace_outs(); break
    :: else -> tt_node_peers_idle(!ANY(IS_INSIDE))
    od
#else
    skip
#endif
}

inline replace_out(c)
{
    is_replaced[AT(me, c)] = is_lent[AT(me, c)]
}

inline replace_outs()
{
#ifndef BREAK_REPLACE
    atomic { replace_out(1); replace_out(CALLS) }
#else
    skip
#endif
}

/* The caller has its memory back, and uses it for something else. */
inline finish(which)
{
    is_lent[AT(me, which)] = 0;
    is_piece_right[AT(me, which)] = 0
}

#define WAS_SHOWN(r) (failure[r] != FAILED || shown[r] >= call)

inline check_result()
{
    assert(ALL(WAS_SHOWN));
    assert(!(is_late[call] && kind[call] != SMALL));
    assert(OUT(me, 0) && OUT(me, 1) && OUT(me, RANKS - 1))
}

inline fail_runs()
{
    if
    :: started >= call -> /* a call is under way */
       if
       :: is_impatient = 1
       :: is_impatient = 0
       fi;
       tt_coll_quiesce()
    :: else
    fi;
    atomic {
        do
        :: call <= started -> finish(call); call++
        :: else -> break
        od
    }
}

/* tt_coll_abort: the rank's own thread, before a call or while one is under way. */
inline tt_coll_abort()
{
    if
    :: atomic { me == VICTIM && is_faulty && !has_struck -> has_struck = 1 }; tt_coll_give_up()
    :: true
    fi
}

inline say_quiet(k)
{
    atomic { assert(BLOCK_IS_THERE(OTHER(k))); quiet[OTHER(k) * RANKS + me] = 1 }
}

/* ORDER: Q1 is a release store, Q2 an acquire load: all that a watcher did with the block was
 * before it is freed. */
inline tt_coll_release()
{
    if
    :: failure[me] == 0 -> failure[me] = LEFT /* tt_coll_take_leave */
    :: else
    fi;
    tt_coll_wake_node_peers();
    FOR_OTHERS(say_quiet)
}

/* The caller may release the group at once, or, after a failure, when all have heard of it. */
inline hold_on()
{
    if
    :: is_out[me] = 1
    :: atomic { status != 0 -> is_out[me] = 1 };
       ALL(IS_OUT)
    fi
}

proctype rank(byte me)
{
    byte call = 1, started, showing;
    bit status, is_given_up, is_right, is_impatient; /* the 100 ms of F2 may pass at any time */
    bit is_late[CALLS + 1];
    {
        do
        :: status == 0 && started < CALLS ->
           tt_coll_abort();
           if
           :: status == 0 -> tt_coll_start(); tt_coll_abort()
           :: else
           fi
        :: status == 0 && call <= started ->
           advance();
           if
           :: status == 0 -> atomic { check_result(); finish(call); call++ }
           :: else
           fi
        :: status != 0 -> fail_runs(); break
        :: status == 0 && call > CALLS -> break
        od;
        hold_on();
        tt_coll_release();
end_sweep: /* tt_quarantine_sweep; a stopped rank keeps it from ever happening */
#ifndef BREAK_QUIET
        ALL(IS_QUIET);
#endif
        is_freed[me] = 1
    } unless {
        is_dead[me] || is_stopped[me]
    }
}

/* The deadline, the death, the stop or the cutting off of the victim, at any moment, or none. */
proctype fate()
{
end_fate:
    atomic {
        is_faulty && !has_struck -> has_struck = 1;
        if
        :: is_due[VICTIM] = 1
        :: is_dead[VICTIM] = 1
        :: is_stopped[VICTIM] = 1
#if RANKS == 2 /* 3 have no other rules, and many more states */
        :: is_cut[VICTIM] = 1
#endif
        fi
    }
}

init
{
    atomic {
#ifdef FAULTY
        is_faulty = FAULTY;
#else
        if
        :: is_faulty = 1
        :: is_faulty = 0
        fi;
#endif
        run rank(0);
        run rank(1);
#if RANKS == 3
        run rank(2);
#endif
        run fate()
    }
}
