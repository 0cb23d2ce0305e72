import type { ClientDuplexStream, StatusObject } from "@grpc/grpc-js";
import { Fifo } from "../../src/base/fifo.ts";
import type { Status__Output } from "../../src/wire/generated/google/rpc/Status.ts";
import type { AddWatch } from "../../src/wire/generated/watchfanout/v1/AddWatch.ts";
import type { SubscribeRequest } from "../../src/wire/generated/watchfanout/v1/SubscribeRequest.ts";
import type { SubscribeResponse__Output } from "../../src/wire/generated/watchfanout/v1/SubscribeResponse.ts";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { decodeRpcStatus } from "../../src/wire/rpc-status.ts";
import { definitions } from "../../src/wire/services.ts";
import { summaryOf } from "../contract/watch-summaries.ts";

/** The end of a watch, or the refusal of a request. */
export interface Said {
  readonly code: number;
  /** Empty for OK. */
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly field: string | undefined;
}

type Call = ClientDuplexStream<SubscribeRequest, SubscribeResponse__Output>;

/** A Subscribe stream of grpc-js, whose responses are read when they are asked for. */
export class Subscribing {
  readonly #call: Call;
  readonly #responses: AsyncIterator<SubscribeResponse__Output>;
  /** Those that were read, and not taken, by id. */
  readonly #waiting = new Map<number, Fifo<SubscribeResponse__Output>>();
  readonly status: Promise<StatusObject>;

  constructor(call: Call) {
    this.#call = call;
    this.#responses = call[Symbol.asyncIterator]();
    call.on("error", () => {});
    this.status = new Promise((resolve) => {
      call.on("status", resolve);
    });
  }

  add(id: number, watch: WatchRequest, credit: Pick<AddWatch, "messages" | "bytes"> = {}): void {
    this.send({ add: { id, watch, ...credit } });
  }

  remove(id: number): void {
    this.send({ remove: { id } });
  }

  grant(id: number, credit: { readonly messages?: number; readonly bytes?: number }): void {
    this.send({ grant: { id, ...credit } });
  }

  /** 0: of all. */
  requestProgress(id: number = 0, tag: number = 0): void {
    this.send({ progress: { id, tag } });
  }

  send(request: SubscribeRequest): void {
    this.#call.write(request);
  }

  halfClose(): void {
    this.#call.end();
  }

  cancel(): void {
    this.#call.cancel();
  }

  /** The next response, of whatever watch, unless it was read while another was waited for. */
  async next(): Promise<SubscribeResponse__Output> {
    const { value, done } = await this.#responses.next();
    if (done === true) throw new Error("The stream has ended.");
    return value;
  }

  /** The next response with this id. */
  async nextOf(id: number): Promise<SubscribeResponse__Output> {
    for (;;) {
      const taken = this.#waiting.get(id)?.shift();
      if (taken !== undefined) return taken;
      const response = await this.next();
      const key = Number(response.id);
      let queue = this.#waiting.get(key);
      if (queue === undefined) {
        queue = new Fifo();
        this.#waiting.set(key, queue);
      }
      queue.push(response);
    }
  }

  /** Number of responses of a watch that were read while another was waited for. */
  waitingOf(id: number): number {
    return this.#waiting.get(id)?.length ?? 0;
  }

  /** The next response of a watch. Throws if it is something else. */
  async watchOf(id: number): Promise<WatchResponse__Output> {
    const { watch, response, ...rest } = await this.nextOf(id);
    if (watch === null || watch === undefined) {
      throw new Error(
        `Instead of a response of the watch ${id}: ${response} ${JSON.stringify(rest)}`,
      );
    }
    return watch;
  }

  /** The next response of a watch, in a line. */
  async summaryOf(id: number): Promise<string> {
    return summaryOf(await this.watchOf(id));
  }

  /** The events of a watch, in a line each, until its resume point reaches `revision`. */
  async eventsOf(id: number, revision: number): Promise<string[]> {
    const lines: string[] = [];
    for (;;) {
      const response = await this.watchOf(id);
      lines.push(...summaryOf({ ...response, revision: undefined } as never).split(", "));
      if (Number(response.revision ?? 0) >= revision) {
        return lines.filter((line) => line !== "" && line !== "complete");
      }
    }
  }

  /** The end of a watch, which is the next that is sent of it. */
  async endOf(id: number): Promise<Said> {
    return said((await this.nextOf(id)).ended, "ended");
  }

  /** The refusal of a request, which is the next that is sent with this id. */
  async refusalOf(id: number): Promise<Said> {
    return said((await this.nextOf(id)).refused, "refused");
  }

  /** The revision of the progress of all watches, which is the next that is sent without an id. */
  async progress(): Promise<number> {
    const { progress, ...rest } = await this.nextOf(0);
    if (progress === null || progress === undefined) {
      throw new Error(`Instead of progress: ${JSON.stringify(rest)}`);
    }
    return Number(progress.revision);
  }
}

function said(status: Status__Output | null | undefined, what: string): Said {
  if (status === null || status === undefined) throw new Error(`Nothing was ${what}.`);
  const type = definitions["google.rpc.Status"] as unknown as {
    serialize(status: Status__Output): Buffer;
  };
  const details = decodeRpcStatus(type.serialize(status));
  const { reason = "", metadata = {}, field } = details ?? {};
  return { code: status.code, reason, metadata, field };
}
