import type { ErrorCode, LossReason } from "./errors.js";

/** A problem of a store that works: it endangers leases, or delays the news of a loss. */
export type Finding =
  /** A full server would evict held locks, because of its `maxmemory-policy`. Set that to `noeviction`. */
  | { readonly type: "eviction"; readonly policy: string; readonly message: string }
  /**
   * The server does not report changes by other clients, such as `DEL` or `FLUSHALL`: a holder learns of them
   * only at its next renewal.
   *
   * The locker finds this in the background, after the first acquisition, if the server refuses `CLIENT
   * TRACKING` or the program's client uses it itself. Grant the missing rights, or set `tracking: false`.
   */
  | { readonly type: "untracked"; readonly reason: string; readonly message: string }
  /**
   * A name has another capacity at the store than this program asks for, for instance during a deploy. The
   * store's `capacity` is in force. Call `Semaphore.resize`, or change the program.
   *
   * The locker finds this with an acquisition of that name, and keeps it for at most 64 names.
   */
  | {
      readonly type: "capacity";
      readonly name: string;
      readonly capacity: number;
      readonly wanted: number;
      readonly message: string;
    };

/** An event of a lock or locker. Times are in milliseconds, and a `token` is a safe integer. */
export type LeaseEvent =
  /** Another client holds the lock, and a caller waits in line. The next waiter has `position` 1. */
  | { readonly type: "waiting"; readonly name: string; readonly position?: number }
  /** The lock was acquired, or was already held when this reader began. */
  | {
      readonly type: "acquired";
      readonly name: string;
      readonly token: number;
      readonly remaining: number;
    }
  /** A turn of a job has begun: this runner has the tick. It follows the `acquired` of the turn's lease. */
  | { readonly type: "begun"; readonly name: string; readonly token: number; readonly tick: number }
  /**
   * Ticks of a job's schedule were missed: nobody completed them before the tick of this turn. It follows the
   * `begun` of a turn that the runner of a schedule gets, if there are any. If that turn does not complete its
   * tick, the next runner of the tick finds and emits them, too.
   */
  | {
      readonly type: "missed";
      readonly name: string;
      readonly token: number;
      /** The first missed tick. */
      readonly first: number;
      /** The number of missed ticks; at most 10,000 for a cron text. */
      readonly ticks: number;
    }
  /**
   * A shared name has another capacity than this handle asks for. The name's capacity is in force.
   *
   * The event follows the `acquired` of its permit. It is normal while a deployment changes the capacity.
   */
  | {
      readonly type: "capacityDiffers";
      readonly name: string;
      readonly token: number;
      /** The capacity of the name. */
      readonly capacity: number;
      /** The capacity that the handle asks for. */
      readonly wanted: number;
    }
  /** A turn has completed its tick, and the store confirmed it. The `released` of its lease follows. */
  | { readonly type: "completed"; readonly name: string; readonly token: number; readonly tick: number }
  /** The lease was extended. */
  | {
      readonly type: "renewed";
      readonly name: string;
      readonly token: number;
      readonly remaining: number;
    }
  /**
   * A renewal failed, or the store cannot be reached. Time is left, and the locker retries. With the code
   * `overheld`, emitted once, the deadline has reached the age that `atMost` allows: renewals end.
   */
  | {
      readonly type: "atRisk";
      readonly name: string;
      readonly token: number;
      readonly remaining: number;
      readonly error: { readonly code: ErrorCode; readonly message: string };
    }
  /**
   * Somebody asked the holder to release the lock soon, by `Locker.requestYield`. It comes once for each request: at
   * once, or with the next renewal if this locker hears no pushes. The lease goes on.
   */
  | {
      readonly type: "wanted";
      readonly name: string;
      readonly token: number;
      /** The `owner` of the locker that asked, or its machine and process. */
      readonly by: string;
      /** Milliseconds that are left to release the lock; 0 if the request was heard too late. */
      readonly within: number;
    }
  /** The lease ended without a confirmed release. The holder must no longer act under it. */
  | {
      readonly type: "lost";
      readonly name: string;
      readonly token: number;
      readonly reason: LossReason;
    }
  /** The holder released the lock, and the store confirmed it. */
  | { readonly type: "released"; readonly name: string; readonly token: number }
  /** The holder passed the lease on, by `Lease.pass`. The lock stays held, for whoever accepts the ticket. */
  | { readonly type: "passed"; readonly name: string; readonly token: number }
  /**
   * The rates of the store's clock and of this machine's clock differed by more than the `driftMargin`: one
   * of them is being slewed, or runs wrong.
   *
   * The locker uses this wider margin from now on, in parts per million. It asks the store at once about the
   * leases it holds. Until the store replies, and for fixed leases, a deadline may be later than the store's
   * expiry. The event comes each time the margin grows; it never shrinks while the locker lives. Only readers
   * of all locks get it.
   */
  | { readonly type: "clockDrift"; readonly driftMargin: number }
  /**
   * A server of a quorum may have forgotten locks: it restarted, was flushed, or was replaced. `server` is
   * its place in the list, counted from 1.
   *
   * The server does not vote on new leases for `remaining` milliseconds. By then no lease is left that it may
   * have forgotten. Only readers of all locks get this event.
   */
  | { readonly type: "quarantined"; readonly server: number; readonly remaining: number }
  /**
   * A quarantined server of a quorum votes again, and backs this locker's leases again, except a lease whose
   * lock another client holds there.
   *
   * Fixed leases that began during the quarantine are over. The next server may be restarted now. Only
   * readers of all locks get this event.
   */
  | { readonly type: "readmitted"; readonly server: number }
  /** This reader was too slow and missed events. An `acquired` for each held lock follows. */
  | { readonly type: "lagged"; readonly missed: number };

/** The identity of a holder or waiter, as other clients see it. */
export interface Owner {
  /** The `owner` that was set, or by default the machine and process. */
  readonly label: string;
  /** True if another locker with the same label may take the lock over. */
  readonly reclaimable: boolean;
  /** The tick that it runs, if it is a runner of a job. */
  readonly tick?: number;
  /**
   * The part of a shared name that it asks for: how many of its slots or units, and the capacity of its
   * handle.
   */
  readonly share?: { readonly sharing: Sharing; readonly weight: number; readonly capacity: number };
}

/** The holder of a lock. */
export interface HolderInfo {
  /**
   * The holder's token. For a quorum it is combined from the servers that answered: it is usually the lease's
   * token, but show it to people only, and do not compare it.
   */
  readonly token: number;
  /** Milliseconds until the lock expires unless it is renewed. */
  readonly remaining: number;
  /** The identity of the holder. */
  readonly owner: Owner;
}

/** A waiter of a lock. */
export interface WaiterInfo {
  /** The identity of the waiter. */
  readonly owner: Owner;
  /** Milliseconds that it has waited. */
  readonly waited: number;
}

/** The state of a lock in the store. */
export interface Inspection {
  /** The holder; `null` if the lock is free, or if the name is `shared`. */
  readonly holder: HolderInfo | null;
  /** The last token of the name, if the store still remembers one; otherwise `null`. */
  readonly lastToken: number | null;
  /** The ticks, if the name is a job's. */
  readonly job?: JobInfo;
  /** The capacity and the holders, if the name is a semaphore's, a quota's, or for readers and writers. */
  readonly shared?: SharedInfo;
  /** The number of waiters. */
  readonly waiting: number;
  /** The waiters among the first 100 places, in order. */
  readonly line: readonly WaiterInfo[];
  /** The pending request to the holder to yield, if there is one. */
  readonly wanted?: WantedInfo;
  /** The server's clock, in milliseconds since 1970. */
  readonly serverTime: number;
}

/**
 * How a shared name gives its capacity to its holders.
 *
 * - `slots`: a semaphore; a slot has one holder at a time
 * - `units`: a quota; units are only counted
 * - `access`: for readers and writers; a reader takes one unit, and a writer takes all
 */
export type Sharing = "slots" | "units" | "access";

/** The capacity and the holders of a shared name. */
export interface SharedInfo {
  /** How the name is shared. */
  readonly sharing: Sharing;
  /**
   * The slots or units of the name. For readers and writers it is 1,000,000,000, of which a writer takes all.
   */
  readonly capacity: number;
  /** The number of times that the capacity was set, from 1. */
  readonly epoch: number;
  /** The token of the last writer, if there was one. */
  readonly generation?: number;
  /** The number of slots or units that are held. */
  readonly used: number;
  /** The number of holders. */
  readonly held: number;
  /** The first 100 holders, the soonest to expire first. */
  readonly holders: readonly PermitInfo[];
}

/** A holder of a part of a shared name. */
export interface PermitInfo {
  /** The permit's token. */
  readonly token: number;
  /** Milliseconds until the permit expires unless it is renewed. */
  readonly remaining: number;
  /** The number of slots or units. */
  readonly weight: number;
  /** The slots; empty if the name has none. */
  readonly slots: readonly number[];
  /** The holder's `owner`, or its machine and process. */
  readonly by: string;
}

/** The ticks of a job. */
export interface JobInfo {
  /** The greatest tick that was completed; `null` if the store remembers none. */
  readonly completed: CompletedInfo | null;
  /**
   * The tick of the last turn, unless it was completed or given back; otherwise `null`. If nobody holds the
   * name, its runner died or lost its lease.
   */
  readonly begun: number | null;
}

/** A tick that was completed. */
export interface CompletedInfo {
  /** The tick. */
  readonly tick: number;
  /** The token of the turn that completed it. */
  readonly token: number;
  /** Milliseconds since it was completed. */
  readonly ago: number;
  /** The label of its runner. */
  readonly by: string;
}

/** A request to the holder of a lock to release it soon. */
export interface WantedInfo {
  /** The `owner` of the locker that asked, or its machine and process. */
  readonly by: string;
  /** Milliseconds that are left to the holder. */
  readonly remaining: number;
}
