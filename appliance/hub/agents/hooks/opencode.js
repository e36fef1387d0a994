// Written by: agentlip agent hooks install opencode.
// Removed by: agentlip agent hooks remove opencode.
//
// opencode calls `server`. Each event starts the command with the event as JSON on its standard
// input. A command that fails or takes too long counts as one without an answer.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const MILLISECONDS_MAX = 8000
const SESSIONS_MAX = 500

const contexts = new Map() // session → what the agent is told at its start
const continued = new Set() // sessions whose last turn was our continuation
const children = new Set() // sessions of subagents

function ask(event, session, more) {
  return new Promise((resolve) => {
    const input = { hook_event_name: event, session_id: session, cwd: process.cwd(), ...more }
    const options = { stdio: ["pipe", "pipe", "ignore"], timeout: MILLISECONDS_MAX }
    const child = spawn(COMMAND[0], COMMAND.slice(1), options)
    let output = ""
    child.on("error", () => resolve({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (data) => (output += data))
    child.on("close", () => {
      try {
        resolve(JSON.parse(output || "{}"))
      } catch {
        resolve({})
      }
    })
    child.stdin.end(JSON.stringify(input))
  })
}

async function contextOf(session) {
  if (!session) return ""
  if (!contexts.has(session)) {
    if (contexts.size >= SESSIONS_MAX) contexts.delete(contexts.keys().next().value)
    const answer = await ask("SessionStart", session, { source: "startup" })
    contexts.set(session, answer.hookSpecificOutput?.additionalContext ?? "")
  }
  return contexts.get(session)
}

async function checkEdit(session, tool, input) {
  if (!/edit|write|patch/i.test(tool)) return
  const answer = await ask("PreToolUse", session, { tool_name: tool, tool_input: input ?? {} })
  const result = answer.hookSpecificOutput
  if (result?.permissionDecision === "deny") throw new Error(result.permissionDecisionReason)
}

// Returns the text that continues the session, or nothing. A continuation is not continued.
async function afterTurn(session) {
  if (children.has(session) || !contexts.has(session)) return undefined
  const active = continued.delete(session)
  const answer = await ask("Stop", session, { stop_hook_active: active })
  if (active || answer.decision !== "block") return undefined
  continued.add(session)
  return answer.reason
}

function forget(session) {
  children.delete(session)
  continued.delete(session)
  return contexts.delete(session) ? ask("SessionEnd", session, { reason: "other" }) : undefined
}

async function handle(type, session, parent, prompt) {
  if (type === "session.created" && parent) children.add(session)
  if (type === "session.deleted") await forget(session)
  if (type === "session.idle") {
    const text = await afterTurn(session)
    if (text) await Promise.resolve(prompt(text)).catch(() => {})
  }
}

async function server({ client }) {
  return {
    event: async ({ event }) => {
      const data = event.properties ?? {}
      const session = data.sessionID ?? data.info?.id
      await handle(event.type, session, data.info?.parentID, (text) => {
        // Not awaited: the prompt ends with the turn that it begins.
        const body = { parts: [{ type: "text", text }] }
        client.session.prompt({ path: { id: session }, body }).catch(() => {})
      })
    },
    "tool.execute.before": (input, output) =>
      checkEdit(input.sessionID, input.tool, output.args),
    "experimental.chat.system.transform": async (input, output) => {
      const text = await contextOf(input.sessionID)
      if (text) output.system.push(text)
    },
  }
}

export default { id: "agentlip", server }
