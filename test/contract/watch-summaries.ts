import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";

/** A stream of a `TestClient`. */
interface Stream {
  readonly ended: Promise<Error>;
  next(): Promise<WatchResponse__Output>;
  until(enough: (response: WatchResponse__Output) => boolean): Promise<WatchResponse__Output[]>;
}

/**
 * A response in a line: `ADDED a@5` for each event, `complete` at the end of the initial state, `=7` for
 * the resume point, nothing where a response has nothing.
 */
export function summaryOf({ events, revision, initial_events_end }: WatchResponse__Output): string {
  const words = eventSummaries(events);
  if (initial_events_end) words.push("complete");
  if (revision !== undefined) words.push(`=${revision}`);
  return words.join(", ");
}

function eventSummaries(events: WatchResponse__Output["events"]): string[] {
  return events.map(({ type, object }) => {
    return `${type.slice("EVENT_TYPE_".length)} ${object?.key}@${object?.mod_revision}`;
  });
}

/** The first response. Rejects with what the stream ended with, where it did instead. */
export async function firstOf(stream: Stream): Promise<WatchResponse__Output> {
  return stream.next().catch(async () => {
    throw await stream.ended;
  });
}

/** The next response, in a line. */
export async function nextSummary(stream: Stream): Promise<string> {
  return summaryOf(await stream.next());
}

/** The events of the initial state, which the request asked for. */
export async function initialEventsOf(stream: Stream): Promise<WatchResponse__Output["events"]> {
  const responses = await stream.until((response) => response.initial_events_end);
  return responses.flatMap(({ events }) => events);
}

/** All events until the resume point reaches `revision`, however they are divided into responses. */
export async function eventsOf(
  stream: Stream,
  revision: number,
): Promise<WatchResponse__Output["events"]> {
  const enough = (response: WatchResponse__Output): boolean =>
    response.revision !== undefined && Number(response.revision) >= revision;
  return (await stream.until(enough)).flatMap(({ events }) => events);
}

/** The same, each in words. */
export async function eventsUntil(stream: Stream, revision: number): Promise<string[]> {
  return eventSummaries(await eventsOf(stream, revision));
}
