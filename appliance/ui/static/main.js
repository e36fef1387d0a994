// Starts the page.
import { html, render } from "./view.js";

function App() {
  return html`<header class="top"><a class="brand" href="#/">Agentlip</a></header>
    <main id="content"><h1>Agentlip</h1></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
