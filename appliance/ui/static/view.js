// The view library: preact with htm, and the hooks that the screens use.
import { h, render, createRef, Component } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);

// A component that is drawn again only if one of its properties changed: most rows of a list stay.
export const rarely = (draw) => class extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  render(props) {
    return draw(props);
  }
};

export { render, createRef, Component, useEffect, useLayoutEffect, useRef, useState };
