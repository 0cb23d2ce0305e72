import type { JournalEntry } from "../../src/storage/journal/journal.ts";
import type { Seeded } from "../faults/seeded.ts";
import type { Scheduler } from "./scheduler.ts";

/** Where a commit is, from its call to its end. A process may end before each of these, and behind the last. */
export const commitSteps = ["called", "written", "synced", "answered"] as const;
export type CommitStep = (typeof commitSteps)[number];

/** What a disk does besides what is asked of it. */
export interface DiskBehaviour {
  /** How long a write, and a sync, take, in milliseconds: up to twice as much. */
  readonly writeMs: number;
  readonly syncMs: number;
  /** How often one of them takes a hundred times as long. */
  readonly slowness: number;
  /** Number of revisions after which the oldest changes are dropped. */
  readonly revisions: number;
}

/** The part of a scenario that is of the embedded store. */
export interface Embedded {
  readonly disk: DiskBehaviour;
  /** How often the disk is full for a while, and how often it breaks, in the life of one process. */
  readonly failures: number;
  /** Before which step of its commits each process ends: see SimulatedStoreOptions. */
  readonly endsBefore: readonly number[];
  /** How many processes lose their power. */
  readonly kills: number;
}

/**
 * The disk of an embedded store: which commits it has, and which of them would survive a loss of power. What a journal promises is
 * that a commit is there whole or not at all: of one that is written and not synced either may be so.
 */
export class SimulatedDisk {
  readonly behaviour: DiskBehaviour;
  readonly #scheduler: Scheduler;
  readonly #random: Seeded;
  /** Each as it was committed. */
  #commits: (readonly JournalEntry[])[] = [];
  #synced = 0;
  #steps = 0;
  /** No commit finds room. */
  isFull = false;
  /** The next commit fails, and it is not known what it has left. */
  isBroken = false;
  /** Called before each step, with its number from 0, by what may end the process. */
  onStep: (step: number, what: CommitStep) => void = () => {};

  constructor(scheduler: Scheduler, random: Seeded, behaviour: DiskBehaviour) {
    this.#scheduler = scheduler;
    this.#random = random;
    this.behaviour = behaviour;
  }

  /** What a process that opens the disk finds. */
  get commits(): readonly (readonly JournalEntry[])[] {
    return this.#commits;
  }

  /** Number of steps of commits until now. */
  get steps(): number {
    return this.#steps;
  }

  passed(what: CommitStep): void {
    this.#scheduler.trace(`disk: ${what}`);
    this.onStep(this.#steps++, what);
  }

  write(entries: readonly JournalEntry[]): void {
    this.#commits.push(entries);
  }

  sync(): void {
    this.#synced = this.#commits.length;
  }

  /** Without power: what is not synced may be there, from the oldest on, or not. */
  lose(): void {
    const unsynced = this.#commits.length - this.#synced;
    this.#commits.length = this.#synced + this.#random.between(0, unsynced);
    this.#synced = this.#commits.length;
  }

  /** How long something takes, in milliseconds. */
  delayMs(typical: number): number {
    const { slowness } = this.behaviour;
    const factor = this.#random.chance(slowness) ? 100 : 1;
    return typical * factor * (1 + this.#random.next());
  }

  after(delayMs: number, what: string): Promise<void> {
    return new Promise((resolve) => {
      this.#scheduler.after(delayMs, `disk: ${what}`, resolve);
    });
  }
}
