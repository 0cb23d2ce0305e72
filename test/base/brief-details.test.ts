import { expect, test } from "vitest";
import { briefDetails } from "../../src/base/connection-cause.ts";

test.each([
  [
    "No connection established. Last error: Error: connect ECONNREFUSED 127.0.0.1:1. Resolution note: ",
    "connect ECONNREFUSED 127.0.0.1:1",
  ],
  [
    "No connection established. Last error: read ECONNRESET (2026-01-02T03:04:05.678Z). Resolution note: ",
    "read ECONNRESET",
  ],
  [
    "No connection established. Last error: null. Resolution note: ",
    "no connection could be established",
  ],
  [
    "Deadline exceeded after 2.501s,name resolution: 0.002s,metadata filters: 0.001s,LB pick: 0.001s,remote_addr=127.0.0.1:1",
    "no response within 2.501s",
  ],
  ["Deadline exceeded after 2.5s,Waiting for LB pick", "no connection within 2.5s"],
  ["etcdserver: no leader", "etcdserver: no leader"],
])("grpc-js' %j is in brief %j", (details, brief) => {
  expect(briefDetails(details)).toBe(brief);
});
