// Drives opencode's plugin as opencode does, and prints what the plugin did as JSON.
//   node opencode_host.mjs PLUGIN FILE
const [plugin, file] = process.argv.slice(2)
const { default: module } = await import(plugin)
const session = "ses_root"
const prompts = []
const refused = {}
const edit = { filePath: file, oldString: "a", newString: "b" }

async function attempt(name, call) {
  try {
    await call()
    refused[name] = ""
  } catch (error) {
    refused[name] = error.message
  }
}

async function drive() {
  // As in anomalyco/opencode, packages/plugin/src/index.ts of 1.18.
  const client = { session: { prompt: async (input) => prompts.push(input) } }
  const hooks = await module.server({ client, directory: process.cwd() })
  const send = (type, properties) => hooks.event({ event: { type, properties } })
  const before = (tool, args) =>
    hooks["tool.execute.before"]({ tool, sessionID: session, callID: "c" }, { args })
  const output = { system: ["base"] }
  await send("session.created", { info: { id: session } })
  await send("session.created", { info: { id: "ses_child", parentID: session } })
  await hooks["experimental.chat.system.transform"]({ sessionID: session }, output)
  await hooks["experimental.chat.system.transform"]({ sessionID: "ses_child" }, { system: [] })
  await attempt("edit", () => before("edit", edit))
  await attempt("read", () => before("read", edit))
  for (let turn = 0; turn < 6; turn++) await send("session.idle", { sessionID: session })
  await send("session.idle", { sessionID: "ses_child" })
  await send("session.idle", { sessionID: "ses_of_another_project" })
  await send("session.deleted", { info: { id: session } })
  return { system: output.system, prompts: prompts.map((p) => [p.path.id, p.body.parts[0].text]) }
}

const result = await drive()
console.log(JSON.stringify({ id: module.id, refused, ...result }))
process.exit(0)
