import type { Identity } from "../../identity/identity.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { CallRecord } from "./audit.ts";
import type { CallSpan } from "./call-span.ts";
import type { CarrierCall } from "./methods.ts";

/**
 * A call of gRPC that is carried by one of another protocol, its `outer` call. It has the client, the identity, the deadline and
 * the end of that one. What is sent and received is for its class to translate.
 */
export abstract class TranslatedCall {
  protected readonly outer: CarrierCall;
  onDeadline: (() => void) | undefined;

  constructor(outer: CarrierCall) {
    this.outer = outer;
  }

  get connection(): object {
    return this.outer.connection;
  }

  get identity(): Identity {
    return this.outer.identity;
  }

  set identity(identity: Identity) {
    this.outer.identity = identity;
  }

  get owner(): CallOwner {
    return this.outer.owner;
  }

  get address(): string {
    return this.outer.address;
  }

  get traceId(): string | undefined {
    return this.outer.traceId;
  }

  set traceId(traceId: string | undefined) {
    this.outer.traceId = traceId;
  }

  get span(): CallSpan | undefined {
    return this.outer.span;
  }

  set span(span: CallSpan | undefined) {
    this.outer.span = span;
  }

  get record(): CallRecord | undefined {
    return this.outer.record;
  }

  set record(record: CallRecord | undefined) {
    this.outer.record = record;
  }

  get via(): string | undefined {
    return this.outer.via;
  }

  set via(via: string | undefined) {
    this.outer.via = via;
  }

  get requestBytes(): number {
    return this.outer.requestBytes;
  }

  set requestBytes(bytes: number) {
    this.outer.requestBytes = bytes;
  }

  get headerBytes(): number {
    return this.outer.headerBytes;
  }

  get deadline(): number | undefined {
    return this.outer.deadline;
  }

  onOver(listener: () => void): void {
    this.outer.onOver(listener);
  }

  onClosed(listener: () => void): void {
    this.outer.onClosed(listener);
  }

  closeConnection(): void {
    this.outer.closeConnection();
  }
}
