// Elements. Data only ever becomes text or an attribute, never markup.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A canvas as sharp as the screen: draw(context, width, height) in CSS pixels.
function paint(canvas, width, height, draw) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  draw(context, width, height);
}

const isDark = () => getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Follows the system until it is switched; a page in a notebook may have no storage.
function themeSwitch() {
  const button = h("button", { type: "button", class: "quiet", onclick: () => show(isDark() ? "light" : "dark") });
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    document.dispatchEvent(new Event("themechange"));
  };
  show();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());
  return button;
}

// Calls `draw` now and whenever the element's width or the colours change, until the element is off the page.
function redrawn(element, draw) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (!element.isConnected) return observer.disconnect();
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    draw();
  });
  observer.observe(element);
  const recolour = () => {
    if (!element.isConnected) return document.removeEventListener("themechange", recolour);
    draw();
  };
  document.addEventListener("themechange", recolour);
}
