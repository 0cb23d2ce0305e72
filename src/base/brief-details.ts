/**
 * What grpc-js says of a failed call, in one line, without what it adds for its own debugging: the text around the cause of
 * a failed connection, its time, the steps that a call waited for, and the place in the code of OpenSSL. Other details as they are.
 */
export function briefDetails(details: string): string {
  const [, afterTime] = /^Deadline exceeded after ([\d.]+s)/.exec(details) ?? [];
  if (afterTime !== undefined) {
    const missing = details.includes("Waiting for LB pick") ? "connection" : "response";
    return `no ${missing} within ${afterTime}`;
  }
  const cause =
    /Last error: (?:Error(?: \[\w+\])?: )?(.+?)\. ?Resolution note/s.exec(details)?.[1] ?? details;
  const withoutTime = cause.replace(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)$/, "");
  // If it is not known here, such as for a connection that another client has tried to open.
  if (withoutTime === "null") return "no connection could be established";
  return withoutTime
    .replace(
      /(?:[0-9A-F]+:)?error:[0-9A-F]+:SSL routines:[^:]*:([^:]+):\S*?:\d+:(.*)/s,
      "TLS: $1 $2",
    )
    .replaceAll(/\s+/g, " ")
    .trim();
}
