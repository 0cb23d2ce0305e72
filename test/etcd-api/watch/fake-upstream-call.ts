import { EventEmitter } from "node:events";
import { Message } from "../../foreign/protobuf.ts";

/** A call of etcd's Watch, as the HTTP/2 stream that it is. */
export type FakeUpstreamCall = EventEmitter & { closed: boolean; isPaused: boolean };

/** `onRequest` gets what is written to it. */
export function fakeUpstreamCall(onRequest: (request: Message) => void): FakeUpstreamCall {
  const call = Object.assign(new EventEmitter(), {
    closed: false,
    isPaused: false,
    close: () => {
      call.closed = true;
    },
    pause: () => {
      call.isPaused = true;
    },
    resume: () => {
      call.isPaused = false;
    },
    write: (frame: Buffer, onSent?: () => void) => {
      onRequest(new Message(frame.subarray(5)));
      onSent?.();
    },
  });
  return call;
}
