"""Defines A2A's requests, replies and errors: https://a2a-protocol.org, version 1.0, section 4."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Raw, Struct

from appliance.hub.wire import POST as POST
from appliance.kernel.errors import Conflict, Exhausted, Invalid, Missing

VERSION = "1.0"
BODY_BYTES_MAX = 256 * 1024  # a message has 64 KiB, and JSON in JSON takes more
PARTS_MAX = 50
TASK_MESSAGES_MAX = 100  # the caller's, in one task
STREAM_SECONDS_MAX = 3600.0  # then a client subscribes again
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"

NO_DATA = Raw(b"")

TaskState = Literal[
    "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_REJECTED",
]  # fmt: skip
RpcId = Annotated[str, Meta(max_length=200)] | int
TaskId = Annotated[str, Meta(min_length=1, max_length=64)]
MessageId = Annotated[str, Meta(min_length=1, max_length=200)]
ContextId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~-]{0,64}$")]
HistoryLength = Annotated[int, Meta(ge=0)]


class A2aRequest(Struct, frozen=True):
    """A JSON-RPC request."""

    jsonrpc: Literal["2.0"]
    id: RpcId
    method: Annotated[str, Meta(min_length=1, max_length=100)]
    params: Raw = Raw(b"{}")


class Part(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A message's part: one among `text`, `url`, `data` and `raw`."""

    text: str | None = None
    url: str | None = None
    data: Raw = NO_DATA
    raw: str | None = None
    filename: str = ""
    media_type: str = ""


class A2aMessage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A message. With `task_id` it continues a task."""

    message_id: MessageId
    role: Literal["ROLE_USER", "ROLE_AGENT"]
    parts: Annotated[list[Part], Meta(min_length=1, max_length=PARTS_MAX)]
    context_id: ContextId = ""
    task_id: Annotated[str, Meta(max_length=64)] = ""


class SendConfiguration(Struct, frozen=True, rename="camel"):
    """`return_immediately`: otherwise the reply waits for the task, at most 60 seconds."""

    return_immediately: bool = False
    history_length: HistoryLength | None = None
    task_push_notification_config: dict[str, Any] | None = None


class SendMessage(Struct, frozen=True, rename="camel"):
    message: A2aMessage
    configuration: SendConfiguration = SendConfiguration()


class GetTask(Struct, frozen=True, rename="camel"):
    id: TaskId
    history_length: HistoryLength | None = None


class TaskReference(Struct, frozen=True, rename="camel"):
    id: TaskId


class Artifact(Struct, frozen=True, rename="camel"):
    artifact_id: str
    parts: list[Part]


class TaskStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    state: TaskState
    timestamp: str
    message: A2aMessage | None = None


class Task(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task.

    artifacts  the agent's messages
    history    the caller's messages
    metadata   `truncated`: older messages are left out"""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: list[Artifact] = []
    history: list[A2aMessage] = []
    metadata: dict[str, bool] = {}


class AgentSkill(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    description: str
    tags: list[str]
    examples: list[str] = []


class AgentInterface(Struct, frozen=True, rename="camel"):
    url: str
    protocol_binding: str = "JSONRPC"
    protocol_version: str = VERSION


class AgentCapabilities(Struct, frozen=True, rename="camel"):
    streaming: bool = True
    push_notifications: bool = False
    extended_agent_card: bool = False


class CardSignature(Struct, frozen=True):
    """A JWS without its payload, which is the card in canonical JSON (RFC 8785)."""

    protected: str
    signature: str


class AgentCard(Struct, frozen=True, rename="camel"):
    """An agent's card. `signatures`: by the member key, if this appliance has one."""

    name: str
    description: str
    supported_interfaces: list[AgentInterface]
    version: str
    capabilities: AgentCapabilities
    security_schemes: dict[str, Any]
    security_requirements: list[Any]
    default_input_modes: list[str]
    default_output_modes: list[str]
    skills: list[AgentSkill]
    signatures: list[CardSignature] = []


class CardKey(Struct, frozen=True):
    """A public key that signs cards, as a JWK."""

    kid: str
    x: str
    kty: str = "OKP"
    crv: str = "Ed25519"
    alg: str = "EdDSA"
    use: str = "sig"


class CardKeys(Struct, frozen=True):
    keys: list[CardKey]


class NoSuchAgent(Missing):
    code = "NO_SUCH_A2A_AGENT"
    default_message = "no agent with this name takes work here"
    default_hint = "add [[a2a.agents]] to agentlip.toml, then: agentlipd restart"


class TaskMissing(Missing):
    """Another caller's task is missing too."""

    rpc: ClassVar[int] = -32001
    code = "TASK_NOT_FOUND"
    default_message = "task not found"
    default_hint = "use the id from SendMessage, with the token that sent it"


class TaskNotCancelable(Conflict):
    rpc: ClassVar[int] = -32002
    code = "TASK_NOT_CANCELABLE"
    default_message = "the task has already ended"
    default_hint = "GetTask shows its state"


class NoPushNotifications(Invalid):
    rpc: ClassVar[int] = -32003
    code = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    default_message = "push notifications are not supported"
    default_hint = "use SubscribeToTask or GetTask"


class UnsupportedOperation(Invalid):
    rpc: ClassVar[int] = -32004
    code = "UNSUPPORTED_OPERATION"
    default_message = "this operation is not supported"
    default_hint = "the agent card lists the capabilities"


class TaskEnded(UnsupportedOperation):
    default_message = "the task has ended"
    default_hint = "send a message without taskId; its contextId may be the same"


class NoSuchContentType(Invalid):
    rpc: ClassVar[int] = -32005
    code = "CONTENT_TYPE_NOT_SUPPORTED"
    default_message = "parts with `raw` bytes are not supported"
    default_hint = "send text, data or a url"


class NoSuchVersion(Invalid):
    rpc: ClassVar[int] = -32009
    code = "VERSION_NOT_SUPPORTED"
    default_message = "this agent speaks A2A 1.0"
    default_hint = "send 'A2A-Version: 1.0'"


class NoSuchMethod(Invalid):
    rpc: ClassVar[int] = -32601
    code = "METHOD_NOT_FOUND"
    default_message = "this A2A method does not exist"
    default_hint = "use SendMessage, SendStreamingMessage, GetTask, CancelTask or SubscribeToTask"


class BadRequest(Invalid):
    rpc: ClassVar[int] = -32600
    code = "INVALID_REQUEST"
    default_message = "the body is not a JSON-RPC request"
    default_hint = 'send {"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"ID"}}'


class NotJson(Invalid):
    rpc: ClassVar[int] = -32700
    code = "PARSE_ERROR"
    default_message = "the body is not valid JSON"
    default_hint = "send JSON in UTF-8 (RFC 8259)"


class TooManyTaskMessages(Exhausted):
    code = "TOO_MANY_TASK_MESSAGES"
    default_message = "the limit of messages in this task has been reached"
    default_hint = "send a message without taskId, which begins another task"
