import type { ListenAddress, LogFormat, LogLevel } from "../../config/config.ts";
import type { ConfigSnapshot } from "../../config/load-config.ts";
import type { ReadinessCheck } from "../../server/admin/admin.ts";
import type { StreamPage } from "../../server/admin/status/stream-page.ts";
import type { StreamQuery } from "../../server/admin/status/stream-query.ts";
import type { ProcessSnapshot } from "../status/process-status.ts";

/*
 * The messages between the main process and its workers, over the IPC channel of Node.js. Both ends are the same version.
 */

/** What a worker needs to begin. */
export interface StartWorker {
  readonly kind: "start";
  /** The worker's number, from 1. */
  readonly worker: number;
  /** Number of workers, between which limits are divided. */
  readonly workers: number;
  /** The configuration, with the files as the main process uses them now. */
  readonly snapshot: ConfigSnapshot;
  readonly logFormat: LogFormat;
  /** The level of the log now, which may not be the configured one. */
  readonly logLevel: LogLevel;
  /** The socket of the main process, in a folder that the worker removes if the main process dies. */
  readonly socket: { readonly path: string; readonly folder: string };
  /** Where the main process accepts connections. */
  readonly acceptedAt: ListenAddress;
}

/** What a worker is asked for, and what it answers. */
export interface WorkerAnswers {
  /** In the format of Prometheus. */
  readonly metrics: string;
  /** Its part of the status, without its streams. */
  readonly snapshot: ProcessSnapshot;
  readonly streams: StreamPage;
}

/** `request` is its number, which the answer has as well. */
export interface Question {
  readonly kind: keyof WorkerAnswers;
  readonly request: number;
  /** Which streams. */
  readonly query?: StreamQuery | undefined;
}

/** From the main process. A connection comes with a socket. */
export type ToWorker =
  | StartWorker
  | { readonly kind: "connection" }
  | Question
  | { readonly kind: "log-level"; readonly level: LogLevel }
  /** To end its oldest connections gracefully, this many. */
  | { readonly kind: "drain-oldest"; readonly connections: number }
  | { readonly kind: "drain" };

/** From a worker. */
export type FromWorker =
  /** It serves the connections that it gets from now on. */
  | { readonly kind: "started" }
  /** It can't start, for a reason that does not pass: a sentence for the user. */
  | { readonly kind: "failed"; readonly message: string }
  /** It has the connection that was sent last. */
  | { readonly kind: "taken" }
  | WorkerStatus
  | Answer;

/** Without a value: it could not be read, which is logged. */
interface Answer {
  readonly kind: "answer";
  readonly request: number;
  readonly value?: WorkerAnswers[keyof WorkerAnswers] | undefined;
}

/** Also shows that the worker's event loop runs. */
export interface WorkerStatus {
  readonly kind: "status";
  readonly readiness: readonly ReadinessCheck[];
  /** Number of open connections of clients. */
  readonly connections: number;
  /** Number of connections that it has been given so far. */
  readonly taken: number;
}
