import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Metadata, status } from "@grpc/grpc-js";
import { LeaseClient, MaintenanceClient } from "etcd3";
import { expect, onTestFinished, test } from "vitest";
import { Member } from "../../../src/etcd/client/member.ts";
import { startScriptedEtcd } from "../../storage/etcd/scripted-etcd.ts";

/** A port that accepts connections to `url`, and forwards nothing until `open` is called. */
async function gateTo(url: string): Promise<{ readonly url: string; open(): void }> {
  const waiting: Socket[] = [];
  const sockets = new Set<Socket>();
  let isOpen = false;
  const pass = (socket: Socket): void => {
    const upstream = connect(Number(new URL(url).port), "127.0.0.1");
    sockets.add(upstream);
    socket.pipe(upstream).pipe(socket);
  };
  const server = createServer((socket) => {
    sockets.add(socket);
    if (isOpen) pass(socket);
    else waiting.push(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open: () => {
      isOpen = true;
      for (const socket of waiting.splice(0)) pass(socket);
    },
  };
}

test("A call that passes its deadline ends no other, not even one that waits for the connection.", async () => {
  const etcd = await startScriptedEtcd({});
  onTestFinished(() => etcd.close());
  const gate = await gateTo(etcd.url);
  const member = new Member(gate.url, undefined, 1024);
  onTestFinished(() => member.close());
  const within = (ms: number) =>
    member.callable(new Metadata(), { deadline: Date.now() + ms, signal: undefined });

  const patient = new LeaseClient(within(60_000)).leaseGrant({ TTL: 60 });
  await expect(new MaintenanceClient(within(50)).status()).rejects.toMatchObject({
    code: status.DEADLINE_EXCEEDED,
  });
  gate.open();
  await expect(patient).resolves.toMatchObject({ ID: "7" });
  expect(etcd.calls).toEqual(["leaseGrant"]);
});

test("A refusal is gRPC's own error, with etcd's words.", async () => {
  const details = "etcdserver: requested lease not found";
  const etcd = await startScriptedEtcd({
    leaseRevoke: () => ({ code: status.NOT_FOUND, details }),
  });
  onTestFinished(() => etcd.close());
  const member = new Member(etcd.url, undefined, 1024);
  onTestFinished(() => member.close());

  const limits = { deadline: Date.now() + 60_000 };
  const leases = new LeaseClient(member.callable(new Metadata(), limits));
  await expect(leases.leaseRevoke({ ID: "5" })).rejects.toMatchObject({
    code: status.NOT_FOUND,
    details,
  });
  expect(etcd.calls).toEqual(["leaseRevoke"]);
});
