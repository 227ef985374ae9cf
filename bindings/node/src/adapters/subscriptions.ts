import type { Hearing, Unheard } from "./adapter.js";
import { answered, failure } from "./failure.js";
import { errorOf, grown, keepTimer, later, now, stopTimer, type Timer, within } from "./shared.js";

/** A connection of this package that listens to one channel. When it breaks, a new one replaces it. */
export interface Subscriber {
  /**
   * Resolves once the server has confirmed the subscription: to the connection's id if it was asked for, or
   * to the reason why there is none.
   */
  readonly ready: Promise<number | Unheard | undefined>;
  /** Sends any request to the server. A refusal counts as a reply. */
  check(): Promise<unknown>;
  keepAlive(alive: boolean): void;
  close(): void;
}

/** The channel that a new connection listens to, and the callbacks for it. */
export interface Wanted {
  readonly channel: string;
  onMessage(text: string): void;
  onEnd(error: unknown): void;
  /** The callback for changes. Without it the connection's id is not requested. */
  readonly onChange: ((key: string) => void) | undefined;
}

type OpenSubscriber = (wanted: Wanted) => Subscriber;

const OPEN_LIMIT = 10_000;
/** The milliseconds between checks that the connection still works, and the time limit of a check. */
const CHECK = 10_000;
const CHECK_LIMIT = 2_000;
const FIRST_RETRY = 50;
const SLOWEST_RETRY = 2_000;
/** The pauses if the server refuses the subscription. */
const FIRST_RETRY_IF_REFUSED = 500;
const SLOWEST_RETRY_IF_REFUSED = 30_000;

/** All subscriptions of an adapter, and whether they keep the process alive. */
export class Subscriptions {
  readonly #subscriptions = new Set<Subscription>();
  #alive = false;

  constructor(private readonly open: OpenSubscriber) {}

  listen(channel: string, hearing: Hearing): () => void {
    const subscription = new Subscription(this.open, channel, hearing, this.#alive);
    this.#subscriptions.add(subscription);
    return () => {
      this.#subscriptions.delete(subscription);
      subscription.stop();
    };
  }

  keepAlive(alive: boolean): void {
    this.#alive = alive;
    for (const subscription of this.#subscriptions) {
      subscription.keepAlive(alive);
    }
  }

  close(): void {
    for (const subscription of this.#subscriptions) {
      subscription.stop();
    }
    this.#subscriptions.clear();
  }
}

/**
 * Listens to one channel until it is stopped.
 *
 * The client does not reconnect by itself. With a new connection each time, every subscription is confirmed,
 * and in a cluster the next one may be to another node.
 */
class Subscription {
  #subscriber: Subscriber | undefined;
  #timer: Timer | undefined;
  #tries = 0;
  #since = Number.POSITIVE_INFINITY;
  #stopped = false;

  constructor(
    private readonly open: OpenSubscriber,
    private readonly channel: string,
    private readonly hearing: Hearing,
    private alive: boolean,
  ) {
    this.#start();
  }

  keepAlive(alive: boolean): void {
    this.alive = alive;
    this.#subscriber?.keepAlive(alive);
    keepTimer(this.#timer, alive);
  }

  stop(): void {
    this.#stopped = true;
    stopTimer(this.#timer);
    this.#subscriber?.close();
    this.#subscriber = undefined;
  }

  #start(): void {
    const current = () => this.#subscriber === subscriber;
    const onEnd = (error: unknown) => current() && this.#broke(error);
    const subscriber = this.open({
      channel: this.channel,
      onMessage: (text) => current() && this.hearing.message(text),
      onEnd,
      onChange: this.hearing.changed && ((key) => current() && this.hearing.changed?.(key)),
    });
    this.#subscriber = subscriber;
    subscriber.keepAlive(this.alive);
    const ready = within(OPEN_LIMIT, subscriber.ready, "the server confirmed no subscription");
    ready.then((id) => current() && this.#subscribed(id), onEnd);
  }

  #subscribed(id: number | Unheard | undefined): void {
    this.#since = now();
    this.#checkLater();
    this.hearing.subscribed(id);
  }

  #checkLater(): void {
    this.#timer = later(CHECK, () => this.#check(), this.alive);
  }

  /** Checks the connection, because a half-open one receives nothing and reports no error. */
  #check(): void {
    const subscriber = this.#subscriber;
    const current = () => subscriber === this.#subscriber && !this.#stopped;
    const answer = answered(subscriber?.check() ?? Promise.resolve());
    within(CHECK_LIMIT, answer, "the subscriber's connection did not answer").then(
      () => current() && this.#checkLater(),
      (error: unknown) => current() && this.#broke(error),
    );
  }

  #broke(reason: unknown): void {
    const error = errorOf(reason);
    stopTimer(this.#timer);
    this.#subscriber?.close();
    this.#subscriber = undefined;
    // After a connection that did not last, the pauses keep growing.
    if (now() - this.#since > CHECK) {
      this.#tries = 0;
    }
    this.#since = Number.POSITIVE_INFINITY;
    const refused = "reply" in failure(error);
    const pause = refused
      ? grown(FIRST_RETRY_IF_REFUSED, this.#tries, SLOWEST_RETRY_IF_REFUSED)
      : grown(FIRST_RETRY, this.#tries, SLOWEST_RETRY);
    this.#tries += 1;
    this.#timer = later(pause, () => this.#start(), this.alive);
    this.hearing.unsubscribed(error);
  }
}
