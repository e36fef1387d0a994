# The functions of nixpkgs' `lib` that the flake uses. `evalModules` knows options, `imports`,
# `mkIf`, `mkDefault`, types and conflicts, with the messages of the original.
let
  inherit (builtins)
    all
    any
    attrNames
    attrValues
    concatLists
    concatMap
    concatStringsSep
    elem
    filter
    foldl'
    head
    isAttrs
    isBool
    isFunction
    isInt
    isList
    isString
    length
    listToAttrs
    map
    mapAttrs
    replaceStrings
    stringLength
    substring
    toJSON
    ;

  hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
  zipAttrs =
    sets:
    mapAttrs (name: _: concatMap (set: if set ? ${name} then [ set.${name} ] else [ ]) sets) (
      foldl' (all: set: all // set) { } sets
    );
  unique = foldl' (list: item: if elem item list then list else list ++ [ item ]) [ ];

  # -- values with conditions and priorities ---------------------------------------------------

  isMarked = kind: value: isAttrs value && value._type or "" == kind;

  # The parts of a definition that apply: `{ priority; value; }` for each.
  applied =
    value:
    if isMarked "if" value then
      if value.condition then applied value.content else [ ]
    else if isMarked "override" value then
      map (part: part // { inherit (value) priority; }) (applied value.content)
    else
      [
        {
          priority = 100;
          inherit value;
        }
      ];

  # A set of definitions, each with the marks that the set has. Reads no condition, because it may
  # depend on the definitions.
  pushedDown =
    set:
    if isMarked "if" set || isMarked "override" set then
      mapAttrs (_: value: set // { content = value; }) (pushedDown set.content)
    else
      set;

  # The values of the parts with the lowest number of priority.
  strongest =
    parts:
    let
      priority = foldl' (least: part: if part.priority < least then part.priority else least) 9999 parts;
    in
    map (part: part.value) (filter (part: part.priority == priority) parts);

  # -- types -----------------------------------------------------------------------------------

  equal =
    path: values:
    if length (unique values) == 1 then
      head values
    else
      throw "The option `${path}' has conflicting definition values: ${toJSON values}";

  type = description: check: {
    inherit description check;
    merge = equal;
  };

  mergeAnything =
    path: values:
    let
      plain = strongest (concatMap applied values);
      named = zipAttrs plain;
      off = filter (name: concatMap applied named.${name} == [ ]) (attrNames named);
    in
    if all (value: isAttrs value && !(value ? outPath)) plain then
      mapAttrs (name: mergeAnything "${path}.${name}") (removeAttrs named off)
    else if all isList plain then
      concatLists plain
    else
      equal path plain;

  types = {
    anything = {
      description = "anything";
      check = _: true;
      merge = mergeAnything;
    };
    str = type "string" isString;
    bool = type "boolean" isBool;
    package = type "package" (value: isAttrs value && value ? outPath);
    port = type "16 bit unsigned integer; between 0 and 65535 (both inclusive)" (
      value: isInt value && value >= 0 && value <= 65535
    );
    ints.positive = type "positive integer, meaning >0" (value: isInt value && value > 0);
    enum =
      values: type "one of ${concatStringsSep ", " (map toJSON values)}" (value: elem value values);
    nullOr = of: type "null or ${of.description}" (value: value == null || of.check value);
    listOf = of: {
      description = "list of (${of.description})";
      check = value: isList value && all of.check value;
      merge = _: concatLists;
    };
    attrsOf = of: {
      description = "attribute set of (${of.description})";
      check = value: isAttrs value && all of.check (attrValues value);
      merge = path: values: mapAttrs (name: equal "${path}.${name}") (zipAttrs values);
    };
    submodule =
      { freeformType }:
      {
        description = "submodule";
        check = isAttrs;
        inherit (freeformType) merge;
      };
  };

  # -- modules ---------------------------------------------------------------------------------

  isOption = isMarked "option";

  evalModules =
    {
      modules,
      specialArgs ? { },
    }:
    let
      arguments = specialArgs // {
        inherit config lib;
      };

      # A module and all that it imports, as { options, config }.
      load =
        module:
        let
          opened = if isFunction module || isAttrs module then module else import module;
          given = if isFunction opened then opened arguments else opened;
          structured = given ? config || given ? options;
        in
        concatMap load (given.imports or [ ])
        ++ [
          {
            options = given.options or { };
            config = if structured then given.config or { } else removeAttrs given [ "imports" ];
          }
        ];
      loaded = concatMap load modules;

      config = merge [ ] (map (module: module.options) loaded) (map (module: module.config) loaded);

      # `declared`: trees of options; `defined`: trees of definitions, both below `path`.
      merge =
        path: declared: defined:
        let
          options = zipAttrs declared;
          definitions = zipAttrs (map pushedDown defined);
          unknown = filter (name: !(options ? ${name})) (attrNames definitions);
        in
        if unknown != [ ] then
          throw "The option `${concatStringsSep "." (path ++ [ (head unknown) ])}' does not exist."
        else
          mapAttrs (
            name: declarations:
            let
              here = path ++ [ name ];
              given = definitions.${name} or [ ];
            in
            if any isOption declarations then
              value (concatStringsSep "." here) (head declarations) (concatMap applied given)
            else
              merge here declarations given
          ) options;

      value =
        path: option: parts:
        let
          values = strongest parts;
          wrong = filter (each: !option.type.check each) values;
        in
        if wrong != [ ] then
          throw "A definition for option `${path}' is not of type `${option.type.description}'. Definition values: ${toJSON wrong}"
        else if values != [ ] then
          option.type.merge path values
        else if option ? default then
          option.default
        else
          throw "The option `${path}' was accessed but has no value defined. Try setting the option.";
    in
    {
      inherit config;
    };

  lib = {
    inherit
      all
      any
      attrNames
      attrValues
      concatLists
      concatStringsSep
      elem
      evalModules
      filter
      hasPrefix
      head
      replaceStrings
      types
      ;
    genAttrs =
      names: make:
      listToAttrs (
        map (name: {
          inherit name;
          value = make name;
        }) names
      );
    optional = condition: item: if condition then [ item ] else [ ];
    optionalAttrs = condition: set: if condition then set else { };
    mapAttrsToList = make: set: map (name: make name set.${name}) (attrNames set);
    subtractLists = others: filter (item: !elem item others);
    removePrefix =
      prefix: text:
      if hasPrefix prefix text then substring (stringLength prefix) (stringLength text) text else text;
    getLib = package: package;
    fileset = {
      unions = paths: paths;
      toSource =
        { root, fileset }:
        {
          files = map (path: lib.removePrefix "${toString root}/" (toString path)) fileset;
        };
    };
    licenses = lib.genAttrs [ "asl20" "lgpl21Only" "mit" ] (name: name);
    sourceTypes = lib.genAttrs [ "binaryNativeCode" "fromSource" ] (name: name);

    mkOption = option: option // { _type = "option"; };
    mkEnableOption =
      what:
      lib.mkOption {
        type = types.bool;
        default = false;
        description = "Whether to enable ${what}.";
      };
    mkIf = condition: content: {
      _type = "if";
      inherit condition content;
    };
    mkDefault = content: {
      _type = "override";
      priority = 1000;
      inherit content;
    };
    literalExpression = text: { inherit text; };
  };
in
lib
