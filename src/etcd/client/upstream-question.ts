import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { waitFor } from "../../base/wait.ts";
import { frameOf } from "../../wire/encode.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { nextMessage, UnreadableMessage } from "../wire/messages.ts";
import type { Upstream } from "./upstream.ts";

/** How long etcd may take to answer, in milliseconds. */
const answerMs = 3_000;

/** Maximum size of an answer, in bytes. */
const maxAnswerBytes = 4 * 1024 ** 2;

/** What etcd has answered. UNAVAILABLE if it has not. */
export interface UpstreamAnswer {
  readonly code: status;
  /** The text of the status. */
  readonly details: string;
  /** Undefined: the code is not OK. */
  readonly message: Buffer | undefined;
}

const notAnswered: UpstreamAnswer = {
  code: status.UNAVAILABLE,
  details: "etcd has not answered",
  message: undefined,
};

/** What a question needs of the members that calls go to. */
export type Askable = Pick<Upstream, "whenAvailable"> & Partial<Pick<Upstream, "namespace">>;

/**
 * Makes a unary call of etcd with the metadata of a client, to find out something before the client's own call is handled.
 * `request`: without gRPC's prefix, of keys in the namespace of the upstream. The answer has keys of etcd. Never rejects.
 */
export function askUpstream(
  upstream: Askable,
  headers: OutgoingHttpHeaders,
  request: Uint8Array,
  clock: Clock,
): Promise<UpstreamAnswer> {
  const translation = upstream.namespace?.translationOf(String(headers[":path"]));
  const sent = translation?.request?.(Buffer.from(request)) ?? request;
  return waitFor<UpstreamAnswer>(
    (resolve) => {
      let stream: ClientHttp2Stream | undefined;
      let isOver = false;
      upstream.whenAvailable({
        isOver: () => isOver,
        open: (connection) => {
          stream = connection.request(headers);
          receive(stream, resolve);
          stream.end(Buffer.concat(frameOf(sent)));
        },
        fail: () => resolve(notAnswered),
      });
      return () => {
        isOver = true;
        if (stream?.closed === false) stream.close(constants.NGHTTP2_CANCEL);
      };
    },
    { deadline: { clock, ms: answerMs, expire: () => notAnswered } },
  );
}

function receive(stream: ClientHttp2Stream, resolve: (answer: UpstreamAnswer) => void): void {
  const messages = new MessageReader();
  let trailers: IncomingHttpHeaders | undefined;
  stream.on("response", (headers: IncomingHttpHeaders) => {
    if (headers["grpc-status"] !== undefined) trailers = headers;
  });
  stream.on("trailers", (received: IncomingHttpHeaders) => {
    trailers = received;
  });
  stream.on("data", (chunk: Buffer) => {
    messages.add(chunk);
    if (messages.received > maxAnswerBytes) resolve(notAnswered);
  });
  stream.on("close", () => resolve(answerOf(messages, trailers)));
}

function answerOf(
  messages: MessageReader,
  trailers: IncomingHttpHeaders | undefined,
): UpstreamAnswer {
  const code = Number(trailers?.["grpc-status"] ?? Number.NaN);
  if (Number.isNaN(code)) return notAnswered;
  if (code !== status.OK) {
    return { code, details: String(trailers?.["grpc-message"] ?? ""), message: undefined };
  }
  try {
    const message = nextMessage(messages, maxAnswerBytes);
    return message === undefined ? notAnswered : { code, details: "", message };
  } catch (error) {
    if (!(error instanceof UnreadableMessage)) throw error;
    return notAnswered;
  }
}
