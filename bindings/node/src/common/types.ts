import type { ErrorCode, LossReason } from "./errors.js";

/** Something that endangers leases, or makes a loss late to be heard of, although the store works. */
export type Finding =
  /** A server that is full would drop held locks, because of its `maxmemory-policy`: set it to `noeviction`. */
  | { readonly type: "eviction"; readonly policy: string; readonly message: string }
  /**
   * The server does not say at once that somebody else has changed a lock, by `DEL` or `FLUSHALL` for example: its
   * holder learns of that at the next renewal. It is found in the background, after the first acquisition, if the
   * server refuses `CLIENT TRACKING` or the program's client uses it itself. Permit what is missing, or turn off
   * `tracking`.
   */
  | { readonly type: "untracked"; readonly reason: string; readonly message: string };

/**
 * Something that happened to a lock of this locker. Times are in milliseconds; a `token` is a safe
 * integer.
 */
export type LeaseEvent =
  /** Somebody else holds the lock, and a caller waits in line; `position` is 1 for who is next. */
  | { readonly type: "waiting"; readonly name: string; readonly position?: number }
  /** The lock is held; or it was held already when this reader began. */
  | {
      readonly type: "acquired";
      readonly name: string;
      readonly token: number;
      readonly remaining: number;
    }
  /** The lease was extended. */
  | {
      readonly type: "renewed";
      readonly name: string;
      readonly token: number;
      readonly remaining: number;
    }
  /** A renewal failed, or the store cannot be reached; time is left, and it is tried again. */
  | {
      readonly type: "atRisk";
      readonly name: string;
      readonly token: number;
      readonly remaining: number;
      readonly error: { readonly code: ErrorCode; readonly message: string };
    }
  /** The lease ended without a confirmed release. The holder must not act under it any more. */
  | {
      readonly type: "lost";
      readonly name: string;
      readonly token: number;
      readonly reason: LossReason;
    }
  /** The holder released the lock, and the store confirmed it. */
  | { readonly type: "released"; readonly name: string; readonly token: number }
  /**
   * The rates of the store's clock and of this machine's were seen to differ by more than the
   * `driftMargin`: one of them is being slewed, or runs wrong. From now on this wider margin is kept, in
   * parts per million. The store is asked at once about the leases that are held; until it replies, and
   * for fixed leases, a deadline may be later than the store's expiry. Only readers of all locks get
   * this event, each time that the margin grows; it never shrinks while the locker lives.
   */
  | { readonly type: "clockDrift"; readonly driftMargin: number }
  /**
   * A server of a quorum, of this place in the list from 1, may have forgotten locks: it restarted, was
   * flushed, or another one came in its place. It does not vote on new leases until none that it may have
   * forgotten is left, for `remaining` milliseconds. Only readers of all locks get this event.
   */
  | { readonly type: "quarantined"; readonly server: number; readonly remaining: number }
  /**
   * A server of a quorum that was in quarantine votes again, and the leases that this locker holds stand on it
   * again, except one whose lock somebody else has there. Fixed leases that began during the quarantine are over.
   * Now the next server may be restarted. Only readers of all locks get this event.
   */
  | { readonly type: "readmitted"; readonly server: number }
  /** This reader was too slow and missed events; an `acquired` for each lock that is held follows. */
  | { readonly type: "lagged"; readonly missed: number };

/** Who holds a lock or waits for it, as others see it. */
export interface Owner {
  readonly label: string;
  /** Whether another locker with the same label may take the lock over. */
  readonly reclaimable: boolean;
}

/** Who has a lock. */
export interface HolderInfo {
  /**
   * The holder's token. At a quorum each server has one of its own, and this is put together of what those say
   * that answered: mostly it is that of the lease, but show it to people, and do not compare it.
   */
  readonly token: number;
  /** Milliseconds until the lock expires unless it is renewed. */
  readonly remaining: number;
  readonly owner: Owner;
}

/** Who waits for a lock. */
export interface WaiterInfo {
  readonly owner: Owner;
  /** For how many milliseconds it has waited. */
  readonly waited: number;
}

/** What the store knows of a lock. */
export interface Inspection {
  /** `null` if the lock is free. */
  readonly holder: HolderInfo | null;
  /** The last token of the name, if the store still remembers one. */
  readonly lastToken: number | null;
  /** How many wait in line. */
  readonly waiting: number;
  /** Those of them who are among the first 100 places, in order. */
  readonly line: readonly WaiterInfo[];
}
