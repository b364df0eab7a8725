<?php

/** The public surface in the namespace Rowclaim as JSON, of the loaded extension or of the file given as argument. */

declare(strict_types=1);

if (isset($argv[1])) {
    require $argv[1];
}

function rowclaim_parameters(ReflectionFunctionAbstract $function): array
{
    return array_map(fn (ReflectionParameter $parameter) => [
        'name' => $parameter->getName(),
        'type' => (string) $parameter->getType(),
        'optional' => $parameter->isOptional(),
        'default' => $parameter->isDefaultValueAvailable() ? $parameter->getDefaultValue() : 'none',
    ], $function->getParameters());
}

$surface = [];
foreach (get_declared_classes() as $name) {
    if (!str_starts_with($name, 'Rowclaim\\')) {
        continue;
    }
    $class = new ReflectionClass($name);
    $interfaces = $class->getInterfaceNames();
    sort($interfaces);
    $one = ['final' => $class->isFinal(), 'parent' => $class->getParentClass() ? $class->getParentClass()->getName() : null, 'interfaces' => $interfaces];
    foreach ($class->getMethods() as $method) {
        // A class that cannot be made from PHP is said to have a constructor without parameters.
        $isHidden = $method->isConstructor() && $method->getNumberOfParameters() === 0;
        if ($method->getDeclaringClass()->getName() === $name && !$isHidden) {
            $one['methods'][$method->getName()] = [
                'static' => $method->isStatic(),
                'public' => $method->isPublic(),
                'parameters' => rowclaim_parameters($method),
                'returns' => (string) $method->getReturnType(),
            ];
        }
    }
    foreach ($class->getProperties() as $property) {
        if ($property->getDeclaringClass()->getName() === $name) {
            $one['properties'][$property->getName()] = (string) $property->getType();
        }
    }
    foreach (['methods', 'properties'] as $part) {
        if (isset($one[$part])) {
            ksort($one[$part]);
        }
    }
    $surface[$name] = $one;
}
$functions = array_merge(...array_values(get_defined_functions()));
foreach ($functions as $name) {
    if (str_starts_with($name, 'rowclaim\\')) {
        $function = new ReflectionFunction($name);
        $surface[$function->getName() . '()'] = ['parameters' => rowclaim_parameters($function), 'returns' => (string) $function->getReturnType()];
    }
}
ksort($surface);
echo json_encode($surface, JSON_PRETTY_PRINT), "\n";
