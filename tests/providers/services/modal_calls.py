"""The calls of Modal's API that its SDK makes for sandboxes. Any other one is answered as not implemented."""

import asyncio
import base64
import json
import time
from typing import TYPE_CHECKING, Any

from google.protobuf import empty_pb2
from grpclib import GRPCError
from grpclib.const import Status as Code
from grpclib.server import Stream
from modal_proto import api_grpc, api_pb2
from modal_proto import task_command_router_grpc as router_grpc
from modal_proto import task_command_router_pb2 as router_pb2

if TYPE_CHECKING:
    from tests.providers.services.modal_service import ModalService, Sandbox

_MISSING = {
    "no-such-package": "No matching distribution found for no-such-package",
    "no-such-model": "404 Client Error: Repository Not Found for no-such-model",
}
_REFUSALS = {
    "no_capacity": (Code.RESOURCE_EXHAUSTED, "Insufficient capacity to create sandbox."),
    "quota": (Code.RESOURCE_EXHAUSTED, "Your workspace has reached its GPU limit of 10."),
    "rate_limited": (Code.RESOURCE_EXHAUSTED, "Rate limit exceeded: too many requests."),
    "bad_credentials": (Code.UNAUTHENTICATED, "Token validation failed."),
    "unavailable": (Code.UNAVAILABLE, "The service is not available."),
    "refused": (Code.INVALID_ARGUMENT, "The request makes no sense."),
}


def _not_implemented(name: str) -> Any:
    async def answer(self: object, stream: Stream[Any, Any]) -> None:
        raise GRPCError(Code.UNIMPLEMENTED, f"{name} is not part of this fake.")

    return answer


# Of the 276 calls of the contract, those that nobody makes here.
_Others = type(
    "_Others",
    (api_grpc.ModalClientBase,),
    {name: _not_implemented(name) for name in api_grpc.ModalClientBase.__abstractmethods__},
)


class ModalCalls(_Others):  # type: ignore[misc, valid-type]
    def __init__(self, service: "ModalService") -> None:
        self.service = service

    def __mapping__(self) -> dict[str, Any]:
        return {path: handler._replace(func=self._guarded(path, handler.func))
                for path, handler in super().__mapping__().items()}  # fmt: skip

    def _guarded(self, path: str, call: Any) -> Any:
        """Looks at the token first, then at what a test wants to go wrong."""
        name = path.rsplit("/", 1)[1]

        async def answer(stream: Stream[Any, Any]) -> None:
            self.service.calls.append(name)
            metadata = stream.metadata or {}
            known = self.service.tokens.get(str(metadata.get("x-modal-token-id")))
            if known is None or known != metadata.get("x-modal-token-secret"):
                raise GRPCError(Code.UNAUTHENTICATED, "Token validation failed.")
            trouble = self.service.trouble(name)
            if trouble in _REFUSALS:
                raise GRPCError(*_REFUSALS[trouble])
            if trouble == "throttled":
                raise GRPCError(
                    Code.RESOURCE_EXHAUSTED, "Slow down.", [api_pb2.RPCRetryPolicy(retry_after_secs=0.2)]
                )
            if trouble == "hang":
                await asyncio.sleep(3600)
            if trouble == "queued":
                await self.SandboxCreate(stream, queued=True)
            elif trouble in ("cut", "late"):
                await call(_Unanswered(stream))
                if trouble == "late":
                    await asyncio.sleep(3600)
                stream._stream._transport.abort()
            else:
                await call(stream)

        return answer

    def _sandbox(self, identifier: str) -> "Sandbox":
        if identifier not in self.service.sandboxes:
            raise GRPCError(Code.NOT_FOUND, f"Sandbox with ID '{identifier}' not found.")
        return self.service.sandboxes[identifier]

    async def ClientHello(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(api_pb2.ClientHelloResponse())

    async def WorkspaceNameLookup(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(api_pb2.WorkspaceNameLookupResponse(username="bloom-tests"))

    async def AuthTokenGet(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        content = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 1200}).encode()).decode()
        await stream.send_message(api_pb2.AuthTokenGetResponse(token=f"x.{content}.x"))

    async def EnvironmentGetOrCreate(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        metadata = api_pb2.EnvironmentMetadata(name=request.deployment_name or "main")
        metadata.settings.image_builder_version = "2025.06"
        await stream.send_message(
            api_pb2.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=metadata)
        )

    async def AppGetOrCreate(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        create = request.object_creation_type == api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING
        if request.app_name not in self.service.apps:
            if not create:
                raise GRPCError(Code.NOT_FOUND, f"App '{request.app_name}' not found.")
            self.service.apps[request.app_name] = self.service.new_identifier("ap")
        app_id = self.service.apps[request.app_name]
        await stream.send_message(api_pb2.AppGetOrCreateResponse(app_id=app_id))

    async def ImageGetOrCreate(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        commands = list(request.image.dockerfile_commands)
        # A layer is kept by what it is made of. Whether a secret is part of that only the real service shows.
        made_of = (*commands, *(base.image_id for base in request.image.base_images))
        image_id = self.service.layers.setdefault(made_of, self.service.new_identifier("im"))
        self.service.images[image_id] = commands
        self.service.bases[image_id] = [base.image_id for base in request.image.base_images]
        self.service.image_secrets[image_id] = [
            self.service.secrets[secret_id] for secret_id in request.image.secret_ids
        ]
        result = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
        for missing, said in _MISSING.items():
            if any(missing in command for command in commands):
                del self.service.layers[made_of]
                result.status = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
                result.exception = said
        if self.service.build_output and result.status == api_pb2.GenericResult.GENERIC_STATUS_SUCCESS:
            # It takes a while: whoever asked listens until it is built.
            result = api_pb2.GenericResult()
        await stream.send_message(api_pb2.ImageGetOrCreateResponse(image_id=image_id, result=result))

    async def ImageJoinStreaming(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        for line in self.service.build_output:
            log = api_pb2.TaskLogs(data=f"{line}\n", file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT)
            await stream.send_message(api_pb2.ImageJoinStreamingResponse(task_logs=[log]))
        done = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
        await stream.send_message(api_pb2.ImageJoinStreamingResponse(result=done, eof=True))

    async def SecretGetOrCreate(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        secret_id = self.service.new_identifier("st")
        self.service.secrets[secret_id] = dict(request.env_dict)
        await stream.send_message(api_pb2.SecretGetOrCreateResponse(secret_id=secret_id))

    async def SandboxCreate(self, stream: Stream[Any, Any], *, queued: bool = False) -> None:
        request = await stream.recv_message()
        name = request.definition.name
        taken = any(name and sandbox.name == name for sandbox in self.service.running)
        if taken:
            raise GRPCError(Code.ALREADY_EXISTS, f"Sandbox with name '{name}' already exists.")
        if request.definition.timeout_secs > 86_400:
            raise GRPCError(Code.INVALID_ARGUMENT, "Timeout cannot exceed 86400 seconds.")
        sandbox = self.service.create(request, queued=queued)
        await stream.send_message(
            api_pb2.SandboxCreateResponse(
                sandbox_id=sandbox.id, metadata=api_pb2.SandboxHandleMetadata(app_id=sandbox.app_id)
            )
        )

    async def SandboxGetTaskId(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        sandbox = self._sandbox(request.sandbox_id)
        task_id = "" if sandbox.machine is None else sandbox.task_id
        await stream.send_message(api_pb2.SandboxGetTaskIdResponse(task_id=task_id))

    async def SandboxWait(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        sandbox = self._sandbox(request.sandbox_id)
        result = await asyncio.to_thread(self.service.result, sandbox)
        await stream.send_message(
            api_pb2.SandboxWaitResponse(
                result=result, metadata=api_pb2.SandboxHandleMetadata(app_id=sandbox.app_id)
            )
        )

    async def SandboxTerminate(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        sandbox = self._sandbox(request.sandbox_id)
        status = api_pb2.GenericResult.GENERIC_STATUS_TERMINATED
        await asyncio.to_thread(self.service.end, sandbox, status, grace_seconds=2)
        await stream.send_message(api_pb2.SandboxTerminateResponse())

    async def SandboxListV2(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
        running = await asyncio.to_thread(lambda: self.service.running)
        found = [
            sandbox
            for sandbox in sorted(running, key=lambda sandbox: -sandbox.created_at)
            if sandbox.app_id == request.app_id and wanted.items() <= sandbox.tags.items()
            if not request.before_timestamp or sandbox.created_at < request.before_timestamp
        ]
        # Pages of two: whoever reads only the first one is found out.
        answer = api_pb2.SandboxListResponse()
        for sandbox in found[:2]:
            answer.sandboxes.add(
                id=sandbox.id,
                created_at=sandbox.created_at,
                app_id=sandbox.app_id,
                name=sandbox.name,
                metadata=api_pb2.SandboxHandleMetadata(app_id=sandbox.app_id),
            )
        await stream.send_message(answer)

    async def SandboxTagsGet(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        answer = api_pb2.SandboxTagsGetResponse()
        for name, value in self._sandbox(request.sandbox_id).tags.items():
            answer.tags.add(tag_name=name, tag_value=value)
        await stream.send_message(answer)

    async def TaskGetCommandRouterAccess(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        content = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 1200}).encode()).decode()
        await stream.send_message(
            api_pb2.TaskGetCommandRouterAccessResponse(url=self.service.url, jwt=f"x.{content}.x")
        )

    async def VolumeGetOrCreate(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        name, volumes = request.deployment_name, self.service.volumes
        if name not in volumes.names:
            if request.object_creation_type != api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING:
                raise GRPCError(Code.NOT_FOUND, f"Volume '{name}' not found.")
            if request.version != api_pb2.VOLUME_FS_VERSION_V2:
                raise GRPCError(Code.INVALID_ARGUMENT, "Only volumes of version 2 commit with sync.")
            volumes.create(name, self.service.new_identifier("vo"))
        metadata = api_pb2.VolumeMetadata(version=api_pb2.VOLUME_FS_VERSION_V2, name=name)
        await stream.send_message(
            api_pb2.VolumeGetOrCreateResponse(
                volume_id=volumes.names[name], version=metadata.version, metadata=metadata
            )
        )

    async def VolumeList(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        answer = api_pb2.VolumeListResponse()
        for name, volume_id in self.service.volumes.names.items():
            metadata = api_pb2.VolumeMetadata(version=api_pb2.VOLUME_FS_VERSION_V2, name=name)
            answer.items.add(label=name, volume_id=volume_id, metadata=metadata)
        await stream.send_message(answer)

    async def VolumeDelete(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        self.service.volumes.delete(request.volume_id)
        await stream.send_message(empty_pb2.Empty())

    async def VolumePutFiles2(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        await stream.send_message(await asyncio.to_thread(self.service.volumes.put, request))

    async def VolumeGetFile2(self, stream: Stream[Any, Any]) -> None:
        await stream.send_message(self.service.volumes.read(await stream.recv_message()))

    async def VolumeListFiles2(self, stream: Stream[Any, Any]) -> None:
        await stream.send_message(self.service.volumes.listed(await stream.recv_message()))

    async def VolumeRemoveFile2(self, stream: Stream[Any, Any]) -> None:
        self.service.volumes.remove(await stream.recv_message())
        await stream.send_message(empty_pb2.Empty())


_OtherRoutes = type(
    "_OtherRoutes",
    (router_grpc.TaskCommandRouterBase,),
    {name: _not_implemented(name) for name in router_grpc.TaskCommandRouterBase.__abstractmethods__},
)


class RouterCalls(_OtherRoutes):  # type: ignore[misc, valid-type]
    """What the SDK says to a sandbox itself, by an address that it is told."""

    def __init__(self, service: "ModalService") -> None:
        self.service = service

    async def TaskReloadVolumes(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        await asyncio.to_thread(self.service.reload, request.task_id)
        await stream.send_message(router_pb2.TaskReloadVolumesResponse())


class _Unanswered:
    """A stream whose answer never leaves."""

    def __init__(self, stream: Stream[Any, Any]) -> None:
        self._stream = stream

    async def recv_message(self) -> Any:
        return await self._stream.recv_message()

    async def send_message(self, message: object) -> None:
        return
