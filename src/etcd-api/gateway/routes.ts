import { type Message, messageOf } from "./schema.ts";

/** A method of etcd at a path of its JSON gateway. */
export interface Route {
  /** Its gRPC path. */
  readonly path: string;
  readonly request: Message;
  readonly response: Message;
  /** Whether it has a stream of requests; of responses. */
  readonly hasRequests: boolean;
  readonly hasResponses: boolean;
}

/** Facts of etcd's protos: paths below /v3, the method, and the message if it is not named as the method. */
const routes = `
kv/range etcdserverpb.KV/Range
kv/put etcdserverpb.KV/Put
kv/deleterange etcdserverpb.KV/DeleteRange
kv/txn etcdserverpb.KV/Txn
kv/compaction etcdserverpb.KV/Compact Compaction
watch etcdserverpb.Watch/Watch
lease/grant etcdserverpb.Lease/LeaseGrant
lease/revoke etcdserverpb.Lease/LeaseRevoke
kv/lease/revoke etcdserverpb.Lease/LeaseRevoke
lease/keepalive etcdserverpb.Lease/LeaseKeepAlive
lease/timetolive etcdserverpb.Lease/LeaseTimeToLive
kv/lease/timetolive etcdserverpb.Lease/LeaseTimeToLive
lease/leases etcdserverpb.Lease/LeaseLeases
kv/lease/leases etcdserverpb.Lease/LeaseLeases
cluster/member/add etcdserverpb.Cluster/MemberAdd
cluster/member/remove etcdserverpb.Cluster/MemberRemove
cluster/member/update etcdserverpb.Cluster/MemberUpdate
cluster/member/list etcdserverpb.Cluster/MemberList
cluster/member/promote etcdserverpb.Cluster/MemberPromote
maintenance/alarm etcdserverpb.Maintenance/Alarm
maintenance/status etcdserverpb.Maintenance/Status
maintenance/defragment etcdserverpb.Maintenance/Defragment
maintenance/hash etcdserverpb.Maintenance/Hash
maintenance/hashkv etcdserverpb.Maintenance/HashKV
maintenance/snapshot etcdserverpb.Maintenance/Snapshot
maintenance/transfer-leadership etcdserverpb.Maintenance/MoveLeader
maintenance/downgrade etcdserverpb.Maintenance/Downgrade
auth/enable etcdserverpb.Auth/AuthEnable
auth/disable etcdserverpb.Auth/AuthDisable
auth/status etcdserverpb.Auth/AuthStatus
auth/authenticate etcdserverpb.Auth/Authenticate
auth/user/add etcdserverpb.Auth/UserAdd AuthUserAdd
auth/user/get etcdserverpb.Auth/UserGet AuthUserGet
auth/user/list etcdserverpb.Auth/UserList AuthUserList
auth/user/delete etcdserverpb.Auth/UserDelete AuthUserDelete
auth/user/changepw etcdserverpb.Auth/UserChangePassword AuthUserChangePassword
auth/user/grant etcdserverpb.Auth/UserGrantRole AuthUserGrantRole
auth/user/revoke etcdserverpb.Auth/UserRevokeRole AuthUserRevokeRole
auth/role/add etcdserverpb.Auth/RoleAdd AuthRoleAdd
auth/role/get etcdserverpb.Auth/RoleGet AuthRoleGet
auth/role/list etcdserverpb.Auth/RoleList AuthRoleList
auth/role/delete etcdserverpb.Auth/RoleDelete AuthRoleDelete
auth/role/grant etcdserverpb.Auth/RoleGrantPermission AuthRoleGrantPermission
auth/role/revoke etcdserverpb.Auth/RoleRevokePermission AuthRoleRevokePermission
lock/lock v3lockpb.Lock/Lock
lock/unlock v3lockpb.Lock/Unlock
election/campaign v3electionpb.Election/Campaign
election/proclaim v3electionpb.Election/Proclaim
election/leader v3electionpb.Election/Leader
election/observe v3electionpb.Election/Observe Leader
election/resign v3electionpb.Election/Resign
`;

const withRequests = ["Watch", "LeaseKeepAlive"];
const withResponses = [...withRequests, "Snapshot", "Observe"];

/** The methods by their path below `/v3/`. */
export const routesByPath: ReadonlyMap<string, Route> = new Map(
  routes
    .trim()
    .split("\n")
    .map((line) => {
      const [below = "", method = "", named] = line.split(" ");
      const name = method.slice(method.indexOf("/") + 1);
      const route: Route = {
        path: `/${method}`,
        request: messageOf(`${named ?? name}Request`),
        response: messageOf(`${named ?? name}Response`),
        hasRequests: withRequests.includes(name),
        hasResponses: withResponses.includes(name),
      };
      return [below, route];
    }),
);
