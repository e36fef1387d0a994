// The view library: preact with htm, and the hooks that the screens use.
import { h, render, createRef, Component } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { render, createRef, Component, useEffect, useRef, useState };
